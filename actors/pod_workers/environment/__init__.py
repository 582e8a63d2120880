"""Environment variables of containers: literal values, references, files and services."""
