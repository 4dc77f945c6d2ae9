"""Generated kernels of AMD chips, executed on any machine: see docs/emulator.md.

`compile_kernel` builds the HIP text that TileLang generates for the host, unmodified; `run` executes it lane by lane and
says what is wrong with it. Importing this package imports neither torch nor tilelang.
"""

from tilegate.emulator.counters import Counters, Counts, LineCounts
from tilegate.emulator.findings import KINDS, Access, Finding, Hint
from tilegate.emulator.launch import ROUNDINGS, SCHEDULES, Schedule, run, run_schedules
from tilegate.emulator.outcome import Run
from tilegate.emulator.process import Limits
from tilegate.emulator.program import Program, UnsupportedKernel, cache_folder, compile_kernel, prepare, prune
from tilegate.emulator.source import Parameter, grid_of, parameters_of
from tilegate.emulator.toolchain import INSTALL, EmulatorError, Toolchain, ToolchainMissing, toolchain

__all__ = [
    "INSTALL",
    "KINDS",
    "ROUNDINGS",
    "SCHEDULES",
    "Access",
    "Counters",
    "Counts",
    "EmulatorError",
    "Finding",
    "Hint",
    "Limits",
    "LineCounts",
    "Parameter",
    "Program",
    "Run",
    "Schedule",
    "Toolchain",
    "ToolchainMissing",
    "UnsupportedKernel",
    "cache_folder",
    "compile_kernel",
    "grid_of",
    "parameters_of",
    "prepare",
    "prune",
    "run",
    "run_schedules",
    "toolchain",
]
