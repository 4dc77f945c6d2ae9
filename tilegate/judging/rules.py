"""By what the cases of a run are judged, and what to measure next of them: what the gate and the judge agree on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilegate.config import GateConfig
from tilegate.judging import decision, noise, noise_file, stats
from tilegate.judging.decision import DONE, Step
from tilegate.judging.measured import Measured, UnsoundError, measured
from tilegate.judging.noise import NoiseProfile
from tilegate.judging.untimed import without_statistics
from tilegate.schemas.samples import Case, Samples, Target


@dataclass(frozen=True)
class Terms:
    """By what one case is judged.

    Attributes:
        config: thresholds and numbers of pairs, those of its override.
        gating: its noise can support the promise.
    """

    config: GateConfig
    gating: bool = True


@dataclass(frozen=True)
class Rules:
    """By what the cases of a run are judged.

    Attributes:
        terms: of every case.
        bias_scale: factor by which the replicates of the run scatter more than its noise model explains; it is in the
            terms already.
        calibrated: how many cases have their noise from a profile.
    """

    terms: Mapping[str, Terms]
    bias_scale: float
    calibrated: int


def rules_of(samples: Samples, config: GateConfig, profile: NoiseProfile | None) -> Rules:
    """Return by what the cases of a run are judged: overrides, calibrated noise, and how well the noise model fits.

    Args:
        samples: complete or not.
        config: of the run.
        profile: of the machine (`profile_of` takes it from the samples); None: the configuration's bias is expected.
    """
    terms, calibrated = {}, 0
    for name, case in samples["cases"].items():
        own = config.for_case(name)
        known = None if profile is None else profile.of(name, case["version"], own)
        terms[name] = Terms(own) if known is None else Terms(*noise.tuned(own, known))
        calibrated += known is not None and bool(case["replicates"])
    scale = noise.bias_scale(list(_confirmed(samples, terms)))
    if scale > 1:
        terms = {name: replace(t, config=t.config.with_bias_scaled(scale)) for name, t in terms.items()}
    return Rules(terms, scale, calibrated)


def _confirmed(samples: Samples, terms: Mapping[str, Terms]) -> Iterator[tuple[list[stats.Array], float]]:
    """Yield, of every case that has been confirmed, the log ratios of each fresh replicate and the expected bias."""
    for name, case in samples["cases"].items():
        if without_statistics(name, case, terms[name].config) is None:
            with contextlib.suppress(UnsoundError):
                m = measured(case, terms[name].config, samples["target"])
                if confirmed := m.confirmed(terms[name].config):
                    yield [replicate.ratios for replicate in confirmed], m.bias


def profile_of(samples: Samples) -> NoiseProfile | None:
    """Return the noise profile that the samples carry, or None."""
    return noise_file.from_samples(samples["noise_profile"]) if "noise_profile" in samples else None


def next_step(case: Case, terms: Terms | GateConfig, *, target: Target, suspects: int = 1) -> Step:
    """Return what the gate should measure next for a case. See `decision.next_step`.

    Args:
        case: with what was measured so far.
        terms: by what it is judged (`rules_of`); or only its configuration.
        target: decides the bias that is expected.
        suspects: how many cases of the run are being confirmed, this one included.

    Returns:
        A Step; "done" also for a case that cannot or need not be timed, or whose samples are unusable.
    """
    terms = terms if isinstance(terms, Terms) else Terms(terms)
    if without_statistics("", case, terms.config) is not None:
        return DONE
    try:
        m = measured(case, terms.config, target)
    except UnsoundError:
        return DONE
    if case["role"] == "control" and len(m.confirmation) >= terms.config.replicates:
        return DONE  # whether it moved is known; how little it could have moved blocks nobody
    return affordable(m, terms, suspects)


def should_confirm(case: Case, terms: Terms | GateConfig, *, target: Target) -> bool:
    """Return whether a case that was screened must be measured again in fresh processes before it can pass."""
    return next_step(case, terms, target=target).action == "confirm"


def wanted(m: Measured, terms: Terms, suspects: int) -> Step:
    """Return what the rules ask for next, however often disturbances have spoilt it."""
    return decision.next_step(m.screen, m.confirmation, terms.config, m.bias, suspects=suspects, gating=terms.gating)


def affordable(m: Measured, terms: Terms, suspects: int) -> Step:
    """Return what is worth measuring next: what disturbances have spoilt is measured again, but not endlessly."""
    step = wanted(m, terms, suspects)
    return DONE if step.action != "done" and m.short.get(step.action, 0) >= terms.config.replicates else step
