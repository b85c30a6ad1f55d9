#!/usr/bin/env python3
"""Compares the verdicts of `jetwheel inspect --format json` on real wheels with those of the survey's reference rule.

usage: compare_verdicts.py ANSWER.json...

ANSWER.json is made by: jetwheel inspect --format json WHEELS, with --device for each of the eight devices in DEVICES.
The reference looks at contents alone: reasons of tags and Requires-Python are left out before comparing. A wheel that
these alone refuse is compared as one without reasons, whether it would run by machine code or by PTX.
"""
import json, pathlib, sys

EXPECTED = pathlib.Path(__file__).resolve().parent.parent / "data" / "verdicts-open.json"
DEVICES = {"Nano JP4": "nano-jp4.6.1", "TX2 JP4": "tx2-jp4.6.6", "Xavier JP5": "xavier-jp5.1.2",
           "Orin JP6": "orin-jp6.2", "Orin JP7.2": "orin-jp7.2", "Thor JP7": "thor-jp7.0",
           "Spark": "spark-cuda13.0", "GH200": "gh200-cuda13.0"}
OF_NAME = {"python-tag", "platform-tag", "requires-python"}
CODES = {"no-cuda": {"cuda-too-new"}, "no-arch": {"no-kernel-image"}, "no-glibc": {"glibc-too-new", "glibcxx-too-new"},
         "PARTIAL": {"partial-kernels"}, "JIT-no": {"compiler-target-missing"}}
RUNS = {"RUN": "admit", "RUN-JIT": "admit-jit"}
# Contracted order of the reasons: a verdict gives all that apply, the most basic first.
ORDER = ["damaged", "hash-mismatch", "metadata-mismatch", "python-tag", "platform-tag", "requires-python",
         "glibc-too-new", "glibcxx-too-new", "cuda-too-new", "spec-conflict", "no-gpu-code", "no-kernel-image",
         "ptx-too-new", "partial-kernels", "compiler-target-missing", "soname-missing", "pair-mismatch",
         "abi-mismatch", "numpy-abi", "advisory", "source-build"]


def wrong(cell, verdict):
    """Why a verdict does not agree with a cell of the reference, or None."""
    codes = [reason["code"] for reason in verdict["reasons"]]
    if codes != sorted(codes, key=ORDER.index):
        return "reasons out of order"
    contents = {code for code in codes if code not in OF_NAME}
    by_name = len(codes) > len(contents)
    if cell in ("cpu", "JIT-ok", "jit?", "-", "any"):
        allowed = {"no-gpu-code"} if cell == "cpu" else set()
        return "contents give %s" % sorted(contents - allowed) if contents - allowed else None
    if cell in RUNS:
        if contents:
            return "contents give %s" % sorted(contents)
        return None if by_name or verdict["verdict"] == RUNS[cell] else "verdict is %s" % verdict["verdict"]
    wanted = cell.split("+")
    missing = [part for part in wanted if not CODES[part] & contents]
    known = set().union(*(CODES[part] for part in wanted)) | {"no-gpu-code", "compiler-target-missing"}
    if missing or contents - known:
        return "contents give %s" % sorted(contents)
    expected = "partial" if cell == "PARTIAL" and not by_name else "refuse"
    return None if verdict["verdict"] == expected else "verdict is %s" % verdict["verdict"]


def main():
    expected = json.loads(EXPECTED.read_text())
    cells = bad = 0
    seen = set()
    for answer in sys.argv[1:]:
        for facts in json.loads(pathlib.Path(answer).read_text())["files"]:
            verdicts = {verdict["device"]: verdict for verdict in facts["verdicts"]}
            seen.add(facts["file"])
            for name, device in DEVICES.items():
                cells += 1
                cell = expected[facts["file"]][name]
                why = wrong(cell, verdicts[device])
                if why:
                    bad += 1
                    print("%s on %s: reference has %s, but %s" % (facts["file"], device, cell, why))
    print("%d wheels of %d, %d cells, %d wrong" % (len(seen), len(expected), cells, bad))
    sys.exit(bad > 0 or not seen)


if __name__ == "__main__":
    main()
