"""The API's rules for a container's own restartPolicy and restartPolicyRules (KEP-5307, KEP-5532).

Both gates are on by default in Kubernetes 1.36; the messages are its API server's.
"""

from collections.abc import Iterator

from actors.config.validation import rules
from actors.config.validation.problems import Path, Violation
from proto.v1 import Container, ContainerRestartRule

POLICIES = ("Always", "OnFailure", "Never")
ACTIONS = ("Restart", "RestartAllContainers")
OPERATORS = ("In", "NotIn")
MOST_RULES = 20
MOST_EXIT_CODES = 255


def validate_restart(path: Path, container: Container) -> Iterator[Violation]:
    """Yield the violations of a regular or init container. Exit codes may be any numbers."""
    at = path / "restartPolicy"
    if container.restart_policy is not None:
        yield from _one_of(at, container.restart_policy, POLICIES)
    elif container.restart_policy_rules:
        yield rules.required(at, "must specify restartPolicy when restart rules are used")
    at = path / "restartPolicyRules"
    yield from _at_most(at, len(container.restart_policy_rules), MOST_RULES)
    for index, rule in enumerate(container.restart_policy_rules):
        yield from _rule(at / index, rule)


def _rule(path: Path, rule: ContainerRestartRule) -> Iterator[Violation]:
    yield from _one_of(path / "action", rule.action, ACTIONS)
    at = path / "exitCodes"
    if rule.exit_codes is None:
        yield rules.required(at, "must be specified")
        return
    yield from _one_of(at / "operator", rule.exit_codes.operator, OPERATORS)
    yield from _at_most(at / "values", len(rule.exit_codes.values), MOST_EXIT_CODES)


def _one_of(path: Path, value: str, accepted: tuple[str, ...]) -> Iterator[Violation]:
    """Check an enumeration. As in the API server, an empty value is unsupported here, not missing."""
    if value:
        yield from rules.one_of(path, value, accepted)
    else:
        supported = ", ".join(f'"{word}"' for word in sorted(accepted))
        yield Violation(path, f'Unsupported value: "": supported values: {supported}')


def _at_most(path: Path, count: int, most: int) -> Iterator[Violation]:
    if count > most:
        yield Violation(path, f"Too many: {count}: must have at most {most} items")
