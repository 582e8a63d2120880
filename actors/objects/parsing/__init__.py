"""Parses files of API objects. Pure."""
