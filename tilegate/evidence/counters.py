"""Hardware counters of two vendors in the same terms: which counter each comes from, and how its files are read.

NVIDIA: Nsight Compute's metrics (`ncu --query-metrics`; Nsight Compute documentation, "Metrics Guide"). AMD: counters and
derived metrics of "MI300 and MI200 Series performance counters and metrics" (rocm.docs.amd.com), read from
rocprofv3's counter_collection.csv. The AMD part has never run on hardware: it is tested on files of that format.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilegate.protocol import JSON

Counters = Mapping[str, float]


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel, as a profiler saw it.

    Attributes:
        kernel: its name.
        grid, block: as the tool writes them.
        counters: raw, in the units of `units`.
        units: as the tool names them; empty where it names none.
    """

    kernel: str
    grid: str
    block: str
    counters: Counters
    units: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Term:
    """One row of the table.

    Attributes:
        name: what people call it, on either vendor.
        unit: "%", "us", "bytes" or "" for counts.
        busy: it is the share of a unit's peak, so the largest of these is the limit.
        ncu, rocprof: (counters, formula) in order of preference; the first whose counters are there is used.
    """

    name: str
    unit: str
    ncu: tuple[tuple[tuple[str, ...], Callable[..., float]], ...]
    rocprof: tuple[tuple[tuple[str, ...], Callable[..., float]], ...]
    busy: bool = False


@dataclass(frozen=True)
class Reading:
    """A term with its value (None: the tool did not give it) and the counters that it comes from."""

    term: Term
    value: float | None
    source: str


def _same(value: float) -> float:
    return value


def _share(part: float, rest: float) -> float:
    return 100 * part / (part + rest) if part + rest else math.nan


def _ratio(part: float, whole: float) -> float:
    return 100 * part / whole if whole else math.nan


def _one(*names: str) -> tuple[tuple[tuple[str, ...], Callable[..., float]], ...]:
    return tuple(((name,), _same) for name in names)


_PEAK = "avg.pct_of_peak_sustained_elapsed"

TERMS: tuple[Term, ...] = (
    Term(
        "time", "us",
        ((("gpu__time_duration.sum",), lambda ns: ns / 1e3),),
        ((("Start_Timestamp", "End_Timestamp"), lambda start, end: (end - start) / 1e3),),
    ),
    Term(
        "matrix units", "%",
        _one(f"sm__pipe_tensor_cycles_active.{_PEAK}", f"sm__inst_executed_pipe_tensor.{_PEAK}"),
        _one("MfmaUtil"),
        busy=True,
    ),
    Term(
        "vector arithmetic", "%",
        _one(f"sm__pipe_fma_cycles_active.{_PEAK}", f"sm__inst_executed_pipe_fma.{_PEAK}"),
        _one("VALUBusy"),
        busy=True,
    ),
    Term("exp2, reciprocal and the like", "%", _one(f"sm__inst_executed_pipe_xu.{_PEAK}"), (), busy=True),
    Term(
        "LDS or shared memory", "%",
        _one(f"l1tex__data_pipe_lsu_wavefronts_mem_shared.{_PEAK}"),
        ((("SQ_LDS_IDX_ACTIVE", "SQ_BUSY_CU_CYCLES"), _ratio), *_one("LdsUtil")),
        busy=True,
    ),
    Term("L2", "%", _one(f"lts__throughput.{_PEAK}"), (), busy=True),
    Term("memory", "%", _one(f"dram__throughput.{_PEAK}"), _one("MemUnitBusy"), busy=True),
    Term(
        "occupancy", "%",
        _one("sm__warps_active.avg.pct_of_peak_sustained_active"),
        _one("OccupancyPercent"),
    ),
    Term(
        "L2 hit rate", "%",
        _one("lts__t_sector_hit_rate.pct"),
        ((("TCC_HIT_sum", "TCC_MISS_sum"), _share), *_one("L2CacheHit")),
    ),
    Term("bytes read from memory", "bytes", _one("dram__bytes_read.sum"), ((("FETCH_SIZE",), lambda kib: kib * 1024),)),
    Term(
        "bytes written to memory", "bytes", _one("dram__bytes_write.sum"), ((("WRITE_SIZE",), lambda kib: kib * 1024),)
    ),
    Term(
        "LDS or shared bank conflicts", "cycles",
        _one("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
        _one("SQ_LDS_BANK_CONFLICT"),
    ),
    Term("instructions", "", _one("sm__inst_executed.sum"), ()),
    Term("matrix instructions", "", _one("sm__inst_executed_pipe_tensor.sum"), _one("SQ_INSTS_MFMA")),
    Term("vector instructions", "", _one("sm__inst_executed_pipe_fma.sum"), _one("SQ_INSTS_VALU")),
    Term("LDS or shared instructions", "", _one("smsp__inst_executed_pipe_lsu.sum"), _one("SQ_INSTS_LDS")),
    Term("scalar or uniform instructions", "", _one("sm__inst_executed_pipe_uniform.sum"), _one("SQ_INSTS_SALU")),
    Term("global memory reads", "", _one("smsp__inst_executed_op_global_ld.sum"), _one("SQ_INSTS_VMEM_RD")),
    Term("global memory writes", "", _one("smsp__inst_executed_op_global_st.sum"), _one("SQ_INSTS_VMEM_WR")),
    Term("registers a thread", "", _one("launch__registers_per_thread"), _one("VGPR_Count")),
)  # fmt: skip

NCU_METRICS = tuple(dict.fromkeys(name for term in TERMS for names, _ in term.ncu for name in names))

ROCPROF_PASSES: tuple[tuple[str, ...], ...] = (
    ("MfmaUtil",),
    ("VALUBusy",),
    ("OccupancyPercent",),
    ("MemUnitBusy",),
    ("TCC_HIT_sum", "TCC_MISS_sum"),
    ("FETCH_SIZE",),
    ("WRITE_SIZE",),
    ("SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE", "SQ_BUSY_CU_CYCLES"),
    ("SQ_INSTS_MFMA", "SQ_INSTS_VALU", "SQ_INSTS_LDS", "SQ_INSTS_SALU"),
    ("SQ_INSTS_VMEM_RD", "SQ_INSTS_VMEM_WR"),
)
"""What one run each collects: the hardware counts few things at a time, and rocprofv3 refuses a list that does not fit."""


def read_ncu(text: str) -> list[Launch]:
    """Read `ncu --csv --page raw`: a line of names, one of units, then a line a launch. Other lines are the program's.

    Raises:
        ValueError: there is no such table.
    """
    lines = text.splitlines()
    first = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        raise ValueError("no table of Nsight Compute: its line of names is missing")
    rows = csv.reader(line for line in lines[first:] if line.startswith('"'))
    names, units = next(rows), next(rows, [])
    launches = []
    for row in rows:
        values = dict(zip(names, row, strict=False))
        counters = {
            name: number for name, text in values.items() if "__" in name and (number := _number(text)) is not None
        }
        named = {name: unit for name, unit in zip(names, units, strict=False) if name in counters and unit}
        launches.append(
            Launch(
                values.get("Kernel Name", ""),
                values.get("Grid Size", ""),
                values.get("Block Size", ""),
                {name: value * _SCALES.get(named.get(name, ""), 1.0) for name, value in counters.items()},
                {name: _BASE_UNITS.get(unit, unit) for name, unit in named.items()},
            )
        )
    return launches


# ncu scales what it prints: Mbyte, usecond. Everything is brought to bytes and nanoseconds.
_SCALES = {
    "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "KB": 1e3, "MB": 1e6, "GB": 1e9,
    "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9, "s": 1e9,
}  # fmt: skip
_BASE_UNITS = {
    **dict.fromkeys(("Kbyte", "Mbyte", "Gbyte", "KB", "MB", "GB"), "byte"),
    **dict.fromkeys(("usecond", "us", "msecond", "ms", "second", "s"), "ns"),
}


def read_rocprof(texts: Sequence[str]) -> list[Launch]:
    """Read counter_collection.csv of every pass of rocprofv3: a line a launch and counter.

    Launches of one kernel are matched by their order among those of that name: the passes run the same program. Columns
    in lower case, which releases after ROCm 7.1 convert from rocpd, are read as well.

    Raises:
        ValueError: a file is no such table.
    """
    found: dict[tuple[str, int], tuple[dict[str, str], dict[str, float]]] = {}
    for text in texts:
        rows = list(csv.DictReader(text.splitlines()))
        rows = [{key.lower(): value for key, value in row.items() if key is not None} for row in rows]
        needed = {"kernel_name", "dispatch_id", "counter_name", "counter_value"}
        if rows and not needed <= rows[0].keys():
            raise ValueError(
                f"no counter_collection.csv of rocprofv3: it has no {', '.join(sorted(needed - rows[0].keys()))}"
            )
        seen: dict[str, list[str]] = {}
        for row in rows:
            dispatches = seen.setdefault(row["kernel_name"], [])
            if row["dispatch_id"] not in dispatches:
                dispatches.append(row["dispatch_id"])
            place = (row["kernel_name"], dispatches.index(row["dispatch_id"]))
            _, counters = found.setdefault(place, (row, {}))
            for name, column in (("Start_Timestamp", "start_timestamp"), ("End_Timestamp", "end_timestamp"), ("VGPR_Count", "vgpr_count")):  # fmt: skip
                if name not in counters and (number := _number(row.get(column))) is not None:
                    counters[name] = number
            if (number := _number(row["counter_value"])) is not None:
                counters[row["counter_name"]] = number
    return [
        Launch(kernel, about.get("grid_size", ""), about.get("workgroup_size", ""), counters)
        for (kernel, _), (about, counters) in found.items()
    ]


def readings(launch: Launch, vendor: str) -> Iterator[Reading]:
    """Yield every term in order.

    Args:
        launch: of `read_ncu` or `read_rocprof`.
        vendor: "cuda" or "hip".
    """
    for term in TERMS:
        ways = term.ncu if vendor == "cuda" else term.rocprof
        for names, formula in ways:
            if all(name in launch.counters for name in names):
                value = formula(*(launch.counters[name] for name in names))
                yield Reading(term, None if math.isnan(value) else value, ", ".join(names))
                break
        else:
            yield Reading(term, None, ", ".join(ways[0][0]) if ways else "no counter")


def limiting(found: Sequence[Reading]) -> Reading | None:
    """Return the unit that is busiest, None if no share of a peak is known. Half busy is no limit: latency is then."""
    shares = [reading for reading in found if reading.term.busy and reading.value is not None]
    return max(shares, key=lambda reading: reading.value or 0.0, default=None)


def to_json(launch: Launch, vendor: str) -> dict[str, JSON]:
    """Return a launch as profile-1.json holds it."""
    found = list(readings(launch, vendor))
    limit = limiting(found)
    return {
        "kernel": launch.kernel,
        "grid": launch.grid,
        "block": launch.block,
        "terms": {
            reading.term.name: {"value": reading.value, "unit": reading.term.unit, "counter": reading.source}
            for reading in found
        },
        "limit": None if limit is None else {"unit": limit.term.name, "busy": limit.value},
    }


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
