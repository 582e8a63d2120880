"""The tracing actor: sends spans of traces to an OTLP collector."""
