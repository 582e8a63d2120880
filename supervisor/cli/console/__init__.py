"""The console: lines, prompt, and keys of remote consoles."""
