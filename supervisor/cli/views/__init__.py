"""The text of commands' output: tables, colours, events and descriptions of pods."""
