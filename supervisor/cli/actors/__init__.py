"""Commands that look inside one actor or change its process: state, mailbox, stacks, profile, ask, eval, kill."""
