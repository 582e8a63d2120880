"""Health of the agent: checks, the healthz server and sd_notify."""
