"""The published benchmarks, one file each, and tasks described in a file."""

from rho_eos.evals.tasks.gsm8k import Gsm8k
from rho_eos.evals.tasks.humaneval import HumanEval
from rho_eos.evals.tasks.math500 import Math500
from rho_eos.evals.tasks.mbpp import Mbpp

TASKS = (Gsm8k(), Math500(), Mbpp(), HumanEval())
