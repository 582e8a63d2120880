"""The oom actor receives only the messages that every actor has."""
