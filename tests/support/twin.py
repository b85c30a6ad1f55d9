#!/usr/bin/env python3
"""Twins of surveyed wheels: same file name, metadata, ELF paths, sonames, symbol versions, fatbinaries (counts, sections,
images, PTX ISA, registration), loose cubins and compiler targets; payloads of a few bytes. A 900 MB wheel becomes a few
MB, so that the golden facts and verdicts of all wheels can be checked without fetching one.

usage: twin.py FACTS.json... -o DIR [--max-loose N]

--max-loose  no more than N loose files of one kind (then golden.py will report their totals)
Compiler targets come from tests/data/jit.json where it knows the wheel, else from the strings in the facts.
"""
import argparse, collections, json, os, pathlib, re
import mkwheel

JIT = pathlib.Path(__file__).resolve().parent.parent / "data" / "jit.json"


def isa_pool(scan):
    """{"compute_90": [[isa, images left], ...]} of one ELF."""
    pool = collections.defaultdict(list)
    for key, n in scan.get("ptx_isa", {}).items():
        arch, isa = key.split(" ptx")
        pool[arch.replace("sm_", "compute_")].append([isa, n])
    return pool


def rows(sigs, pool):
    """Survey signatures -> rows for mkwheel; PTX images draw their ISA from the pool."""
    out = []
    for sig, n in sigs.items():
        images = [t.replace("kind8:sm_", "lto_") for t in sig.split()]
        while n:
            draw = [pool[i] for i in images if i.startswith("compute_")]
            k = min([n] + [p[0][1] for p in draw])
            out.append({"images": [i + "/" + pool[i][0][0] if i.startswith("compute_") else i for i in images], "count": k})
            for p in draw:
                p[0][1] -= k
                if not p[0][1]:
                    p.pop(0)
            n -= k
    return out


def take(table, n):
    """Moves n fatbinaries with the fewest images from the rows to a list of their own: the packer's empty stubs."""
    out = []
    for row in sorted(table, key=lambda r: len(r["images"])):
        k = min(n, row["count"])
        if k:
            out.append({**row, "count": k})
            row["count"] -= k
            n -= k
    return out, [r for r in table if r["count"]]


def archive(data):
    """An ar archive with one member."""
    head = b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (b"k.o/", 0, 0, 0, 0o100644, len(data))
    return b"!<arch>\n" + head + data + b"\n" * (len(data) % 2)


def layout(scan):
    """CUDA release whose packer layout fits: new cubin ABI below sm_100 means 13, else 12."""
    for key in scan.get("eflags", {}):
        m = re.match(r"sm_(\d+)[af]? v8", key)
        if m and int(m[1]) < 100:
            return "13.0"
    return "12.9"


def elf_spec(e, targets):
    scan = e.get("scan") or {}
    pool = isa_pool(scan)
    sections = {s: rows(sig, pool) for s, sig in scan.get("sigs", {}).items()}
    strings = targets or sorted(k for k in e.get("hints", {}).get("sm_strings", {}) if k.startswith("compute_"))
    name = os.path.basename(e["path"])
    if targets is not None and e.get("_cuda"):
        release = ".".join(e["_cuda"].split(".")[:2])
        strings = ["Cuda compilation tools, release %s, V%s" % (release, e["_cuda"])] + strings
    spec = {"path": e["path"], "needed": e.get("needed", []), "versions": e.get("verneed", {}), "soname": e.get("soname"),
            "runpath": e.get("runpath"), "rpath": e.get("rpath"), "strings": strings, "cuda": layout(scan), "payload": "bare",
            "program": "/bin/" in e["path"] and ".so" not in name}
    fat, rel = sections.pop(".nv_fatbin", []), sections.pop("__nv_relfatbin", [])
    total = sum(r["count"] for r in fat + rel)
    spec["stubs"], spec["fatbins"] = take(fat, total - (e.get("nvFatBinSegment_wrappers") or 0))
    spec["relfatbins"], spec["pools"] = rel, sections
    spec["raw_cubins"] = [a for a, n in (scan.get("raw_cubins") or {}).items() for _ in range(n)]
    return spec


def twin(facts, jit, max_loose):
    key = next((k for k in sorted(jit, key=len, reverse=True) if facts["filename"].startswith(k)), None)
    meta = facts["metadata"]
    requires = meta.get("requires_dist") or []
    top = facts["filename"].split("-")[0]
    files, elfs, cubins = {top + "/__init__.py": ""}, [], {}
    for e in facts["elfs"]:
        known = {os.path.basename(k): v for k, v in jit.get(key, {}).items()}.get(os.path.basename(e["path"]))
        targets = None
        if known and "cubin" not in e["path"]:
            targets, e = ["compute_" + t for t in known["targets"]], {**e, "_cuda": known["cuda"]}
        spec = elf_spec(e, targets)
        if e["machine"] == "ar":
            spec["pools"] = {".nv_fatbin": spec["pools"].get("?", [])}
            files[e["path"]] = archive(mkwheel.elf(spec))
        else:
            elfs.append(spec)
    listed = collections.defaultdict(list)
    for row in facts["loose"]:
        listed[row["type"]].append(row["path"])
    for kind, n in facts["loose_counts"].items():
        typ, arch, *rest = kind.split()
        for i in range(min(n, max_loose)):
            path = listed[typ].pop(0) if listed[typ] else "%s/loose/%s_%d.%s" % (top, arch.rstrip("?"), i, typ)
            if typ == "cubin":
                cubins[path] = arch.rstrip("?")
            else:
                files[path] = mkwheel.ptx(*mkwheel.parse_image(arch)[1:3], rest[0]).rstrip(b"\0")
    for ext in ".cu", ".cuh":
        if ext in facts["interesting_exts"]:
            files["%s/csrc/kernel%s" % (top, ext)] = "__global__ void k() {}\n"
    return {"filename": facts["filename"], "name": meta["name"], "version": meta["version"], "elfs": elfs, "cubins": cubins,
            "files": files, "tags": facts["wheel_tags"], "requires_python": meta.get("requires_python"), "requires_dist": requires,
            "provides_extra": sorted({m for r in requires for m in re.findall(r"extra == [\"']([^\"']+)", r)})}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("facts", nargs="+")
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--max-loose", type=int, default=1 << 30)
    a = p.parse_args()
    jit = json.loads(JIT.read_text())
    for f in a.facts:
        path = mkwheel.build(twin(json.loads(pathlib.Path(f).read_text()), jit, a.max_loose), a.output)
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
