#!/usr/bin/env python3
"""Compares what `jetwheel inspect --format json` says of wheels with the survey of the same wheels.

usage: compare_golden.py [--twin] [--store DIR] ANSWER.json...

ANSWER.json  output of inspect; its files are looked up by name in tests/data/golden
--twin       the wheels are twins: digests, sizes and numbers that depend on payloads are not compared
--store DIR  writes the facts of each file that compared equal to DIR/NAME.json, compact

Compared per ELF file and archive: size, SONAME, DT_NEEDED, RUNPATH, highest GLIBC, GLIBCXX and CXXABI need, registered
fatbinaries, fatbinaries by section and set of images, PTX ISA versions, bare cubins; per wheel: digest, size, loose files,
metadata (the survey has only some of the requirements), damage (none). Folders of build machines are blanked out in the
survey's RUNPATHs. The survey has no GLIBC needs and no DT_NEEDED of archives and cubins.
"""
import argparse, collections, json, pathlib, re, sys

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "data" / "golden"


def plain(image):
    """An image without PTX ISA version."""
    return image.split(" ")[0]


def survey_image(text):
    return re.sub(r"^kind8:sm_", "lto_", text)


def survey_rows(scan):
    rows = collections.Counter()
    for section, sigs in scan.get("sigs", {}).items():
        for sig, count in sigs.items():
            images = tuple(sorted({survey_image(i) for i in sig.split()}))
            rows[None if section == "?" else section, images] += count
    return rows


def our_rows(member):
    rows = collections.Counter()
    for row in member.get("fatbins", ()):
        rows[row["section"], tuple(sorted({plain(i) for i in row["images"]}))] += row["count"]
    return rows


def survey_isas(scan):
    """PTX targets with their ISA version. How often each occurs is not compared: the survey counts entries, we fatbinaries."""
    return {k.replace("sm_", "compute_") for k in scan.get("ptx_isa", {})}


def our_isas(member):
    return {i for row in member.get("fatbins", ()) for i in row["images"] if i.startswith(("compute_", "relptx_"))}


def compare(golden, facts, twin):
    wrong = []

    def same(what, found, expected):
        if found != expected:
            wrong.append("%s: found %r, survey has %r" % (what, found, expected))

    if not twin:
        same("sha256", facts["sha256"], golden["sha256"])
        same("size", facts["size"], golden["size"])
    same("damage", facts["damage"], [])
    meta = golden["metadata"]
    same("version", facts["version"], meta["version"])
    same("requires_python", facts.get("requires_python"), meta.get("requires_python"))
    absent = [r for r in meta.get("requires_dist") or [] if r.strip() not in facts["requires_dist"]]
    same("requires_dist without", absent, [])
    members = {m["path"]: m for m in facts["members"]}
    seen = set()
    for e in golden["elfs"]:
        path = e["path"]
        m = members.get(path)
        if m is None:
            wrong.append("%s: not found" % path)
            continue
        seen.add(path)
        scan = e.get("scan") or {}
        top = e.get("max_ver", {})
        ar = e["machine"] == "ar"
        same(path + ": kind", m["kind"], "archive" if ar else "elf")
        if not twin:
            same(path + ": size", m["size"], e["size"])
        if not ar:
            same(path + ": needed", m.get("needed", []), e.get("needed", []))
            same(path + ": soname", m.get("soname"), e.get("soname"))
            run = [p for p in (e.get("runpath") or e.get("rpath") or "").split(":") if p]
            ours = ["<build-host path>" if want.startswith("<") else p for p, want in zip(m.get("runpath", []), run)]
            same(path + ": runpath", ours + m.get("runpath", [])[len(run):], run)
            for key in "GLIBC", "GLIBCXX", "CXXABI":
                same(path + ": " + key, m.get(key.lower()), top.get(key))
            same(path + ": registered", m["registered_fatbins"], e.get("nvFatBinSegment_wrappers") or 0)
        same(path + ": fatbins", our_rows(m), survey_rows(scan))
        same(path + ": PTX ISA", our_isas(m), survey_isas(scan))
        if not ar and not twin:
            same(path + ": bare cubins", m.get("bare_cubins", {}), scan.get("raw_cubins") or {})
    loose = collections.Counter()
    for m in facts["members"]:
        if m["kind"] in ("cubin", "ptx", "fatbin"):
            loose[m["kind"], tuple(plain(i) for r in m["fatbins"] for i in r["images"])] += 1
    expected = collections.Counter()
    for key, n in golden["loose_counts"].items():
        kind, arch, *rest = key.split()
        arch = arch.rstrip("?")
        expected[kind, (arch.replace("sm_", "compute_") if kind == "ptx" else arch,)] += n
    same("loose files", loose, expected)
    extra = [p for p, m in members.items() if p not in seen and m["kind"] in ("elf", "archive", "other")]
    if extra:
        wrong.append("not in the survey: %s" % extra[:5])
    return wrong


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("answers", nargs="+")
    p.add_argument("--twin", action="store_true")
    p.add_argument("--store", type=pathlib.Path)
    a = p.parse_args()
    bad = 0
    for answer in a.answers:
        for facts in json.loads(pathlib.Path(answer).read_text())["files"]:
            stem = facts["file"][:-4]
            wrong = compare(json.loads((GOLDEN / (stem + ".json")).read_text()), facts, a.twin)
            print(stem, "equal" if not wrong else "DIFFERS")
            for line in wrong:
                print("   ", line[:400])
            bad += bool(wrong)
            if a.store and not wrong:
                facts.pop("verdicts", None)
                (a.store / (stem + ".json")).write_text(json.dumps(facts, separators=(",", ":")) + "\n")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
