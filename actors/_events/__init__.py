"""The recorder with which actors send events to the events actor."""
