"""What is known of the cases before any is timed: which there are, what the compiler makes of them, and whether they
compute what they should."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from tilegate.config import GateConfig
from tilegate.files import UsageError
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.referee import Referee, new_draw
from tilegate.measuring.samples import Record, new_side
from tilegate.measuring.session import BrokenModule, Catalogue, ListedCase, WorkerError, wants_to_be_alone
from tilegate.progress import Reporter
from tilegate.schemas.samples import Case, Failure, Side, SideName

_LISTED = 5  # cases that an error message names
_SIDES: tuple[SideName, ...] = ("base", "head")


def inspect(pool: WorkerPool, record: Record, pattern: str | None, reporter: Reporter) -> None:
    """Fill the record with every case of either side that matches `pattern`: its identity at both, and its role.

    Raises:
        UsageError: there are no such cases.
    """
    catalogues = {}
    with record.timed("import"), reporter.phase("import", len(pool.workspaces)) as phase:
        pool.start()  # all import at the same time
        for name in pool.workspaces:
            phase.doing(f"package and suite of {name}")
            catalogues[name] = _catalogue(pool, name)
            phase.done(f"package and suite of {name}")
    cases = _select(*_collect(catalogues), pattern)
    listed = list(cases)
    with record.timed("compile"):
        _identify(pool, cases, reporter)
    _refuse_none_left(cases, listed)
    _assign_roles(cases, record)
    record.cases.update(cases)
    record.save()


def check(
    pool: WorkerPool, record: Record, config: GateConfig, reporter: Reporter, referee: Referee | None = None
) -> None:
    """Check the results of the head in every case, and of the base where it is timed or where the head is wrong.

    By the suite's own `check` in the side's process, and by the referee where the suite shows it what a launch wrote.
    """
    pending = [name for name, case in record.cases.items() if _unchecked(case, "head") or _base_to_check(case)]
    unverified = 0
    if pending and referee is not None:
        referee.start()
    with record.timed("check"), reporter.phase("check", len(pending)) as phase:
        for name in pending:
            case = record.cases[name]
            phase.doing(name)
            to_check = {worker_of_head(pool, name): case["head"]} if _unchecked(case, "head") else {}
            if _base_to_check(case):
                to_check["base"] = case["base"]
            failed: dict[str, str] = {}
            skipped = _check(pool, name, to_check, config.for_case(name), referee=referee, failed=failed)
            if len(to_check) > 1 and (
                beside := _checked_apart(pool, name, to_check, failed, config.for_case(name), referee=referee)
            ):
                case["apart"] = beside
                reporter.note(f"{name} needs the device alone: its sides are measured one after the other")
            if _base_to_check(case):  # only now is it known that the head is wrong
                skipped |= _check(pool, name, {"base": case["base"]}, config.for_case(name), referee=referee)
            if len(skipped) == len(_SIDES):
                del record.cases[name]
                phase.done(f"{name}: skipped by the suite (NotImplementedError in setup)")
                record.save()
                continue
            unverified += case["head"]["status"] == "ok" and not case["head"]["checked"]
            phase.done(_outcome(name, case))
            record.save()
    _refuse_none_left(record.cases, pending)
    if unverified:
        reporter.note(f"{unverified} cases have no check(), so nothing says whether their results are right")


def _refuse_none_left(cases: Mapping[str, object], before: Sequence[str]) -> None:
    """Refuse a run of whose cases the suite skips every one."""
    if not cases and before:
        more = f" and {len(before) - 1} more" if len(before) > 1 else ""
        raise UsageError(
            f"the suite skips {before[0]}{more} here (NotImplementedError in setup or artifacts), so nothing is left to "
            "measure; name other cases with -b, or another --target or --tier"
        )


def _catalogue(pool: WorkerPool, name: str) -> Catalogue:
    """Return what the worker found, with the failure of the whole suite if it could not be loaded."""
    try:
        return pool.worker(name).catalogue()
    except WorkerError as error:
        pool.drop(name)
        broken: BrokenModule = {"kind": error.kind, "message": error.message, "log": error.log}
        return {"cases": [], "broken": {"": broken}}


def _collect(catalogues: Mapping[str, Catalogue]) -> tuple[dict[str, Case], list[str]]:
    """Return all cases of all sides, the base's first, with what is known of each side.

    Those whose names are returned, too, stand for a module that could be imported nowhere.
    """
    listed = {name: {case["id"]: case for case in found["cases"]} for name, found in catalogues.items()}
    known: dict[str, ListedCase] = {}
    for cases in listed.values():
        known = {**cases, **known}
    ordered = list(dict.fromkeys(case_id for cases in listed.values() for case_id in cases))
    found = {case_id: _case(case_id, known[case_id], catalogues, listed) for case_id in ordered}
    modules = _modules_without_cases(catalogues, listed)
    for module in modules:
        unknown: ListedCase = {"id": module, "benchmark": module, "params": [], "version": "0"}
        found[module] = _case(module, unknown, catalogues, listed)
    return found, modules


def _case(
    case_id: str,
    listed_as: ListedCase,
    catalogues: Mapping[str, Catalogue],
    listed: Mapping[str, Mapping[str, ListedCase]],
) -> Case:
    only_new = case_id in listed.get("new", {}) and case_id not in listed["head"]
    case: Case = {
        "benchmark": listed_as["benchmark"],
        "params": listed_as["params"],
        "version": listed_as["version"],
        # What the base's suite does not have the base cannot be asked for.
        "base": new_side("missing") if only_new else _side(case_id, "base", catalogues, listed),
        "head": _side(case_id, "new" if only_new else "head", catalogues, listed),
        "role": "gated",
        "replicates": [],
    }
    if "work" in listed_as:
        case["work"] = listed_as["work"]
    return case


def _modules_without_cases(
    catalogues: Mapping[str, Catalogue], listed: Mapping[str, Mapping[str, ListedCase]]
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
    catalogues: Mapping[str, Catalogue],
    listed: Mapping[str, Mapping[str, ListedCase]],
) -> Side:
    if name not in catalogues:
        return new_side("missing")
    if case_id in listed[name] and "" not in catalogues[name]["broken"]:
        return new_side()
    for module, failure in catalogues[name]["broken"].items():
        if _belongs(case_id, module) or case_id == (module or "(suite)"):
            if failure["kind"] in ("missing", "skipped"):
                return new_side("missing")
            kind, message, log = failure["kind"], failure["message"], failure.get("log")
            return new_side("failed", WorkerError(kind, message, log).failure())
    return new_side("missing")


def _belongs(benchmark: str, module: str) -> bool:
    return module == "" or benchmark.startswith(f"{module}.")


def _select(cases: dict[str, Case], modules: list[str], pattern: str | None) -> dict[str, Case]:
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


def _identify(pool: WorkerPool, cases: dict[str, Case], reporter: Reporter) -> None:
    """Compile everything at both commits and take the identity of the generated code."""
    wanted: dict[str, list[str]] = {}
    for case_id, case in cases.items():
        if case["base"]["status"] == "ok":
            wanted.setdefault("base", []).append(case_id)
        if case["head"]["status"] == "ok":
            wanted.setdefault(worker_of_head(pool, case_id), []).append(case_id)
    with reporter.phase("compile", len(cases)) as phase:
        phase.doing("all kernels at both revisions")
        for name, answer in pool.precompile(wanted).items():
            try:
                answer()
            except WorkerError as error:  # which case it was shows below, one by one
                reporter.note(f"compiling all kernels of {name} at once failed ({error.kind}): {error.message}")
        for case_id, case in list(cases.items()):
            phase.doing(case_id)
            sides: dict[str, SideName] = {"base": "base", worker_of_head(pool, case_id): "head"}
            asked = {name: {"case": case_id} for name, side in sides.items() if case[side]["status"] == "ok"}
            skipped = set()
            timeout = pool.config.for_case(case_id).compile_timeout
            for name, answer in pool.request_all("artifacts", timeout, asked).items():
                of = case[sides[name]]
                try:
                    made = answer()
                    of["identity"], of["resources"] = made["identity"], made["resources"]
                except WorkerError as error:
                    if _fail(of, error):
                        skipped.add(name)
            phase.done(_outcome(case_id, case))
            if len(skipped) == len(_SIDES):
                del cases[case_id]


def _assign_roles(cases: dict[str, Case], record: Record) -> None:
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


def worker_of_head(pool: WorkerPool, case_id: str) -> str:
    """Return which worker has the head's version of a case: "new" if only the head's own suite knows it."""
    if "new" not in pool.workspaces:
        return "head"
    here = {case["id"] for case in _catalogue(pool, "head")["cases"]}
    there = {case["id"] for case in _catalogue(pool, "new")["cases"]}
    return "new" if case_id in there - here else "head"


def _unchecked(case: Case, side: SideName) -> bool:
    return case[side]["status"] == "ok" and not case[side]["checked"]


def _base_to_check(case: Case) -> bool:
    """The base is timed, or the head is wrong or absent and the question is whether that is the head's doing."""
    return _unchecked(case, "base") and (case["role"] != "identical" or case["head"]["status"] != "ok")


def _check(
    pool: WorkerPool,
    case_id: str,
    sides: Mapping[str, Side],
    config: GateConfig,
    *,
    referee: Referee | None,
    failed: dict[str, str] | None = None,
) -> set[str]:
    """Check a case in the workers of that name, all at once; enter in `sides` what came of it. Return who skips it.

    Args:
        pool: has the workers.
        case_id: which case.
        sides: by worker.
        config: of the case.
        referee: compares results, too, if there is one and the suite shows it what a launch wrote.
        failed: gets, of each worker that failed, at which operation.
    """
    going, skipped, shown = dict(sides), set[str](), set[str]()
    for operation, timeout in (
        ("setup", config.compile_timeout),
        ("check", config.check_timeout),
        ("look", config.check_timeout),
        ("teardown", config.check_timeout),
    ):
        draw = new_draw()
        arguments: dict[str, dict[str, str]] = dict.fromkeys(going, {"case": case_id} if operation == "setup" else {})
        if operation == "look":
            arguments = {name: {"draw": draw} for name in shown & set(going)}
        for name, answer in pool.request_all(operation, timeout, arguments).items():
            try:
                answered = answer()
                if operation == "setup" and answered and referee is not None and name in _SIDES:
                    shown.add(name)
                if operation == "look" and referee is not None:
                    referee.look(pool, name, case_id, draw)
            except WorkerError as error:
                if _fail(going.pop(name), error):
                    skipped.add(name)
                elif failed is not None:
                    failed[name] = operation
            else:
                if operation in ("check", "look"):
                    going[name]["checked"] |= answered is not False
    return skipped


def _checked_apart(
    pool: WorkerPool,
    case_id: str,
    sides: Mapping[str, Side],
    failed: Mapping[str, str],
    config: GateConfig,
    *,
    referee: Referee | None,
) -> Failure | None:
    """Check what failed beside the other side once more, alone; return how it failed if that was the other's doing."""
    found = {name: sides[name]["failure"] for name in failed}
    again = {name: f for name, f in found.items() if f is not None and wants_to_be_alone(f["kind"], failed[name])}
    for name in again:
        sides[name]["status"], sides[name]["failure"] = "ok", None
        _check(pool, case_id, {name: sides[name]}, config, referee=referee)
    mended = [failure for name, failure in again.items() if sides[name]["status"] == "ok"]
    return mended[0] if mended and all(side["status"] == "ok" for side in sides.values()) else None


def _fail(side: Side, error: WorkerError) -> bool:
    """Enter what became of a side; return whether the suite itself skips the case."""
    if error.kind in ("missing", "skipped"):
        side["status"] = "missing"
    else:
        side["status"], side["failure"] = "failed", error.failure()
    return error.kind == "skipped"


def _outcome(case_id: str, case: Case) -> str:
    failed = [f"{side}: {of['kind']}" for side in _SIDES if (of := case[side]["failure"]) is not None]
    return ": ".join([case_id, *failed])
