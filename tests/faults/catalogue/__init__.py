"""The catalogue of bad inputs, one list of cases for each kind."""

from __future__ import annotations

from faults.cases import Case
from faults.catalogue import data, devices, files, functions, numbers, options, requests, values

ALL: tuple[Case, ...] = (
    *options.CASES, *numbers.CASES, *requests.CASES, *files.CASES, *data.CASES, *functions.CASES, *values.CASES,
    *devices.CASES,
)  # fmt: skip
