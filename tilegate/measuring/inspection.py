"""What is known of the cases before any is timed: which there are, what the compiler makes of them, and whether they
compute what they should."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from tilegate.config import GateConfig
from tilegate.files import UsageError
from tilegate.measuring.samples import Record, new_side
from tilegate.measuring.session import Crew, WorkerError
from tilegate.progress import Reporter

_LISTED = 5  # cases that an error message names


def inspect(crew: Crew, record: Record, pattern: str | None, reporter: Reporter) -> None:
    """Fill the record with every case of either side that matches `pattern`: its identity at both, and its role.

    Raises:
        UsageError: there are no such cases.
    """
    catalogues = {}
    with record.timed("import"), reporter.phase("import", len(crew.stages)) as phase:
        crew.start()  # all import at the same time
        for name in crew.stages:
            phase.doing(f"package and suite of {name}")
            catalogues[name] = _catalogue(crew, name)
            phase.done(f"package and suite of {name}")
    cases = _select(*_collect(catalogues), pattern)
    with record.timed("compile"):
        _identify(crew, cases, reporter)
    _assign_roles(cases, record)
    record.cases.update(cases)
    record.save()


def check(crew: Crew, record: Record, config: GateConfig, reporter: Reporter) -> None:
    """Check the results of the head in every case, and of the base where it is timed or where the head is wrong."""
    pending = [name for name, case in record.cases.items() if _unchecked(case, "head") or _base_to_check(case)]
    unverified = 0
    with record.timed("check"), reporter.phase("check", len(pending)) as phase:
        for name in pending:
            case = record.cases[name]
            phase.doing(name)
            to_check = {holder(crew, name): case["head"]} if _unchecked(case, "head") else {}
            if _base_to_check(case):
                to_check["base"] = case["base"]
            _check(crew, name, to_check, config.for_case(name))
            if _base_to_check(case):  # only now is it known that the head is wrong
                _check(crew, name, {"base": case["base"]}, config.for_case(name))
            if {case["base"]["status"], case["head"]["status"]} == {"skipped"}:
                del record.cases[name]
                phase.done(f"{name}: skipped by the suite")
                record.save()
                continue
            for side in ("base", "head"):
                if case[side]["status"] == "skipped":
                    case[side]["status"] = "missing"
            unverified += case["head"]["status"] == "ok" and not case["head"]["checked"]
            phase.done(_outcome(name, case))
            record.save()
    if unverified:
        reporter.note(f"{unverified} cases have no check(), so nothing says whether their results are right")


def _catalogue(crew: Crew, name: str) -> dict[str, Any]:
    """Return what the worker found, with the failure of the whole suite if it could not be loaded."""
    try:
        return crew.worker(name).catalogue()
    except WorkerError as error:
        crew.drop(name)
        return {"cases": [], "broken": {"": {**error.failure(), "kind": error.kind}}}


def _collect(catalogues: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return all cases of all sides, the base's first, with what is known of each side.

    Those whose names are returned, too, stand for a module that could be imported nowhere.
    """
    listed = {name: {case["id"]: case for case in found["cases"]} for name, found in catalogues.items()}
    cases: dict[str, dict[str, Any]] = {}
    for name in catalogues:
        for case_id, case in listed[name].items():
            if case_id not in cases:
                cases[case_id] = {key: case[key] for key in ("benchmark", "params", "version", "work") if key in case}
    modules = _modules_without_cases(catalogues, listed)
    for module in modules:
        cases[module] = {"benchmark": module, "params": [], "version": "0"}
    for case_id, case in cases.items():
        case["base"] = _side(case_id, "base", catalogues, listed)
        holder = "new" if case_id in listed.get("new", {}) and case_id not in listed["head"] else "head"
        case["head"] = _side(case_id, holder, catalogues, listed)
        if holder == "new":  # the base's suite does not have it, so the base cannot be asked
            case["base"] = new_side("missing")
        case |= {"role": "gated", "replicates": []}
    return cases, modules


def _modules_without_cases(
    catalogues: Mapping[str, Mapping[str, Any]], listed: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the suite's modules that no side could import: their cases are unknown, and must not be forgotten."""
    broken = {name: set(found["broken"]) for name, found in catalogues.items() if name != "new"}
    nowhere = set.intersection(*broken.values()) if broken else set()
    known = {case["benchmark"] for cases in listed.values() for case in cases.values()}
    return sorted(
        module or "(suite)" for module in nowhere if not any(_belongs(benchmark, module) for benchmark in known)
    )


def _side(
    case_id: str,
    name: str,
    catalogues: Mapping[str, Mapping[str, Any]],
    listed: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    if name not in catalogues:
        return new_side("missing")
    if case_id in listed[name] and "" not in catalogues[name]["broken"]:
        return new_side()
    for module, failure in catalogues[name]["broken"].items():
        if _belongs(case_id, module) or case_id == (module or "(suite)"):
            if failure["kind"] in ("missing", "skipped"):
                return new_side("missing")
            return new_side("failed", {"log": None, **failure})
    return new_side("missing")


def _belongs(benchmark: str, module: str) -> bool:
    return module == "" or benchmark.startswith(f"{module}.")


def _select(cases: dict[str, Any], modules: list[str], pattern: str | None) -> dict[str, Any]:
    if not cases:
        raise UsageError("the suite has no latency_ benchmarks for this target and tier")
    if pattern is None:
        return cases
    chosen = {case_id: case for case_id, case in cases.items() if re.search(pattern, case_id)}
    if not chosen:  # what is looked for may be in a module that could not be imported
        chosen = {case_id: cases[case_id] for case_id in modules}
    if not chosen:
        some = "\n  ".join(list(cases)[:_LISTED])
        more = f"\n  and {len(cases) - _LISTED} more" if len(cases) > _LISTED else ""
        raise UsageError(f"no case matches -b {pattern!r}; there are\n  {some}{more}")
    return chosen


def _identify(crew: Crew, cases: dict[str, dict[str, Any]], reporter: Reporter) -> None:
    """Compile everything at both commits and take the identity of the generated code."""
    wanted: dict[str, list[str]] = {}
    for case_id, case in cases.items():
        if case["base"]["status"] == "ok":
            wanted.setdefault("base", []).append(case_id)
        if case["head"]["status"] == "ok":
            wanted.setdefault(holder(crew, case_id), []).append(case_id)
    with reporter.phase("compile", len(cases)) as phase:
        phase.doing("all kernels at both revisions")
        for name, answer in crew.precompile(wanted).items():
            try:
                answer()
            except WorkerError as error:  # which case it was shows below, one by one
                reporter.note(f"compiling all kernels of {name} at once failed ({error.kind}): {error.message}")
        for case_id, case in cases.items():
            phase.doing(case_id)
            holders = {"base": "base", holder(crew, case_id): "head"}
            asked = {name: {"case": case_id} for name, side in holders.items() if case[side]["status"] == "ok"}
            timeout = crew.config.for_case(case_id).compile_timeout
            for name, answer in crew.request_all("artifacts", timeout, asked).items():
                side = case[holders[name]]
                try:
                    side |= answer()
                except WorkerError as error:
                    _fail(side, error)
            phase.done(_outcome(case_id, case))
    for case_id in [c for c, case in cases.items() if case["base"]["status"] == case["head"]["status"] == "skipped"]:
        del cases[case_id]
    for case in cases.values():
        for side in (case["base"], case["head"]):
            if side["status"] == "skipped":
                side["status"] = "missing"


def _assign_roles(cases: dict[str, dict[str, Any]], record: Record) -> None:
    """Cases whose code is identical are not timed, apart from a random sample as negative controls."""
    identical = sorted(
        case_id
        for case_id, case in cases.items()
        if case["base"]["identity"] is not None and case["base"]["identity"] == case["head"]["identity"]
    )
    for case_id in identical:
        cases[case_id]["role"] = "identical"
    count = min(record.document["config"]["controls"], len(identical))
    chosen = random.Random(f"{record.document['seed']}/controls").sample(identical, count)  # noqa: S311 - not secret
    for case_id in chosen:
        cases[case_id]["role"] = "control"


def holder(crew: Crew, case_id: str) -> str:
    """Return which stage has the head's version of a case: "new" if only the head's own suite knows it."""
    if "new" not in crew.stages:
        return "head"
    here = {case["id"] for case in _catalogue(crew, "head")["cases"]}
    there = {case["id"] for case in _catalogue(crew, "new")["cases"]}
    return "new" if case_id in there - here else "head"


def _unchecked(case: Mapping[str, Any], side: str) -> bool:
    return case[side]["status"] == "ok" and not case[side]["checked"]


def _base_to_check(case: Mapping[str, Any]) -> bool:
    """The base is timed, or the head is wrong or absent and the question is whether that is the head's doing."""
    return _unchecked(case, "base") and (case["role"] != "identical" or case["head"]["status"] != "ok")


def _check(crew: Crew, case_id: str, sides: Mapping[str, dict[str, Any]], config: GateConfig) -> None:
    """Check a case in the workers of that name, all at once; enter in `sides` what came of it."""
    going = dict(sides)
    for operation, timeout in (
        ("setup", config.compile_timeout),
        ("check", config.check_timeout),
        ("teardown", config.check_timeout),
    ):
        arguments = {name: {"case": case_id} if operation == "setup" else {} for name in going}
        for name, answer in crew.request_all(operation, timeout, arguments).items():
            try:
                answered = answer()
            except WorkerError as error:
                _fail(going.pop(name), error)
            else:
                if operation == "check":
                    going[name]["checked"] = answered


def _fail(side: dict[str, Any], error: WorkerError) -> None:
    if error.kind in ("missing", "skipped"):
        side["status"] = error.kind
    else:
        side |= {"status": "failed", "failure": error.failure()}


def _outcome(case_id: str, case: Mapping[str, Any]) -> str:
    failed = [f"{side}: {case[side]['failure']['kind']}" for side in ("base", "head") if case[side]["failure"]]
    return ": ".join([case_id, *failed])
