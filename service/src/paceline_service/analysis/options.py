"""The settings of the analysis, with why each default is what it is."""

from __future__ import annotations

from paceline.dataclass import dataclass

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How cautious the analysis is. One number matters to users: the false-alarm rate."""

    details: bool = False
    """Steps come with what is drawn of them (``StepRow.detail``)."""
    false_namings_per_month: float = 1.0
    """Allowed false namings per job in 30 days (docs/math/evidence.md)."""
    settling_steps: int = 5
    """First steps that are not judged: compilation, allocation, connection set-up."""
    learning_steps: int = 30
    """Steps from which each rank's healthy offset is learned first."""
    relearnings: int = 6
    """How often the steps learned from may double until the offsets are frozen, because
    offsets that kept learning would absorb a creeping fault."""
    material_ratio: float = 0.005
    """A finding must cost the job at least this share of its time (DETECTION section 4)."""
    slow_from_start_ratio: float = 0.01
    """How much slower than its peers a rank must be to be named without a healthy past."""
    grace_steps: int = 1
    """A step is judged when every rank has ended this many steps more: late records count."""
    patience_s: float = 120.0
    """A rank is waited for until the others have gone on for so long without it: a minute that a
    node is cut off, and what its agent then needs to send again. One that is silent for longer
    delays the others once by this time."""
    catch_up_s: float = 300.0
    """For how long one may be behind by more while its records come, as those of a node that
    sends what it has kept: who does not catch up is passed over."""
    patience_rows: int = 8_000_000
    """Rows that are held (1 GB) before nobody is waited for any longer."""
    history_values: int = 4_000_000
    """Scores that are kept for onset and evidence, over all ranks (float32)."""
    hang_floor_s: float = 30.0
    """No wait that is shorter is called a hang, however short the steps are: a collector names
    within a minute what an operator would see after several."""
    hang_startup_s: float = 600.0
    """The same before the first step is over: compilation and the first batch take minutes."""
