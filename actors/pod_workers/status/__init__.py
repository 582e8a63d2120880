"""Pod status as the API has it: phase, conditions and container statuses."""
