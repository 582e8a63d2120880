"""Carries out CSI steps. Blocks: runs in a helper process, the only place where gRPC and the stubs are imported."""

from __future__ import annotations

from typing import TypeAlias

from actors._host.selinux import has_seclabel
from actors.volume.csi import disk, operations, registration
from actors.volume.ops import removal
from actors.volume.steps.codec import Outcome
from actors.volume.steps.csi import CsiMeasure, CsiMount, CsiUnmount, CsiUnstage, Describe, Register

Driven: TypeAlias = Register | Describe | CsiMount | CsiUnmount | CsiUnstage | CsiMeasure
"""Steps that call a driver."""


def carry_out(root: str, step: Driven, at: removal.At) -> Outcome:
    """Carry out one step. Raises VolumeError, OSError."""

    def mark(files: int = 0) -> None:
        at(step.name, files)

    match step:
        case Register():
            return Outcome(driver=registration.register(step, mark))
        case Describe():
            return Outcome(driver=registration.describe(step.driver, mark))
        case CsiMount():
            grown = operations.mount(root, step, mark)
            seclabel = not step.volume.block and has_seclabel(disk.mount_point(root, step.volume))
            return Outcome(grown=grown.result, refusal=grown.refusal, seclabel=seclabel)
        case CsiUnmount():
            operations.unmount(root, step, mark)
        case CsiUnstage():
            operations.unstage(root, step, mark)
        case CsiMeasure():
            usage = operations.measure(root, step, mark)
            return Outcome(usages=(usage,) if usage is not None else ())
    return Outcome()
