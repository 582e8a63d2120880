"""The parent process: its start, its loop, the requests it answers and its duties to the host."""
