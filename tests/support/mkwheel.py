#!/usr/bin/env python3
"""Builds small, valid wheels from facts: tags, metadata, aarch64 ELF files with chosen DT_NEEDED, symbol versions and
CUDA fatbinaries, compilers that list targets, loose cubins. Standard library only; no compiler; same facts, same bytes.

usage: mkwheel.py SPEC.json [-o DIR]              one spec, or a list of specs
       mkwheel.py FILENAME.whl [-o DIR] [--sass sm_87]... [--ptx compute_87/8.5]... [--needed SONAME]... [--glibc 2.35]
                  [--glibcxx 3.4.30] [--requires REQ]... [--requires-python SPEC] [--version V] [--fatbins N] [--cuda 12.6]
                  [--ptxas compute_90a]... [--cubin sm_110f]...

A spec (every key but filename is optional):
 {"filename": "demo-1.0+cu126-cp310-cp310-linux_aarch64.whl",
  "name": "demo", "version": "1.0",                  METADATA, when it shall differ from the file name
  "tags": ["cp310-cp310-linux_aarch64"],             Tag lines of WHEEL, when they shall differ from the file name
  "requires_python": ">=3.10", "requires_dist": ["torch==2.8.0"], "provides_extra": ["x"],
  "elfs": [{"path": "demo/_C.so", "soname": "_C.so", "needed": ["libcudart.so.12"], "runpath": "$ORIGIN/lib", "rpath": null,
    "glibc": "2.35", "glibcxx": "3.4.30",             shorthand, adds libc.so.6 and libstdc++.so.6 to needed
    "versions": {"libm.so.6": ["GLIBC_2.29"]},        .gnu.version_r in full
    "imports": ["sym"], "exports": ["PyInit__C"], "strings": ["NUL-delimited", "in .rodata"],
    "cuda": "12.6", "payload": "cubin",               packer's layout; payload "cubin", "bare" or a number of bytes
    "fatbins": [["sm_87", "compute_87/8.5"], {"images": ["sm_90a"], "count": 3}],    .nv_fatbin, registered
    "stubs": [["sm_75"]],                             .nv_fatbin, without wrapper
    "relfatbins": [["sm_80"]],                        __nv_relfatbin, registered
    "pools": {".data": [["sm_90", "lto_90"]], ".cask_resource": [["sm_110f"]]},     never registered
    "raw_cubins": ["sm_70"],                          bare cubins in .rodata
    "program": false, "machine": "aarch64"}],
  "compilers": {"demo/bin/ptxas": {"targets": ["compute_90a"], "cuda": "13.0"}},
  "cubins": {"demo/k.cubin": "sm_110f"},              a fixture of that arch if there is one, else made here
  "files": {"demo/__init__.py": ""}}
"""
import argparse, base64, hashlib, io, json, os, pathlib, re, struct, sys, zipfile, zlib

HERE = pathlib.Path(__file__).resolve().parent
CUBINS = HERE.parent / "data" / "fatbin" / "cubin"
ISA = {"10.0": "6.3", "10.2": "6.5", "11.4": "7.4", "11.8": "7.8", "12.0": "8.0", "12.1": "8.1", "12.2": "8.2", "12.3": "8.3",
       "12.4": "8.4", "12.5": "8.5", "12.6": "8.5", "12.8": "8.7", "12.9": "8.8", "13.0": "9.0", "13.1": "9.1", "13.2": "9.2",
       "13.3": "9.3", "13.4": "9.4", "13.5": "9.5"}          # newest PTX ISA of a CUDA release
IMAGE = re.compile(r"(sm|compute|lto)_(\d+)([af]?)(?:(?:/| ptx)(\d+)\.(\d+))?")
KIND = {"compute": 1, "sm": 2, "lto": 8}


def pad(data, n):
    return data + bytes(-len(data) % n)


def noise(seed, n):
    """n bytes that look random and hold no accidental ELF or fatbinary magic (bytes 0x80 to 0xff, never 0xba)."""
    out, i = bytearray(), 0
    while len(out) < n:
        out += hashlib.sha256(b"%s %d" % (seed.encode(), i)).digest()
        i += 1
    return bytes(0x81 if b | 0x80 == 0xba else b | 0x80 for b in out[:n])


# ---------------------------------------------------------------- compression, as the packers' readers understand it

def lz4_block(data):
    out, anchor, i, seen = bytearray(), 0, 0, {}

    def emit(lits, dist=0, n=0):
        def more(v):
            return b"" if v < 15 else b"\xff" * ((v - 15) // 255) + bytes([(v - 15) % 255])
        out.append(min(len(lits), 15) << 4 | (min(n - 4, 15) if n else 0))
        out.extend(more(len(lits)) + lits)
        if n:
            out.extend(struct.pack("<H", dist) + more(n - 4))
    while i < len(data) - 12:                            # the format allows no match later than that
        j = seen.get(data[i:i + 4])
        seen[data[i:i + 4]] = i
        if j is None or i - j > 65535:
            i += 1
            continue
        n = 4
        while i + n < len(data) - 5 and data[j + n] == data[i + n]:
            n += 1
        emit(data[anchor:i], i - j, n)
        i = anchor = i + n
    emit(data[anchor:])
    return bytes(out)


def zstd_frame(data):
    """One frame with content size and no checksum, made of raw and run-length blocks."""
    n, blocks = len(data), []
    size = (b"\x20" + bytes([n]) if n < 256 else b"\x60" + struct.pack("<H", n - 256) if n < 65792
            else b"\xa0" + struct.pack("<I", n))
    for m in re.finditer(rb"(?s)(.)\1{15,}|(?:(?!(.)\2{15,}).)+", data):
        run = m[0]
        for k in range(0, len(run), 1 << 16):
            part = run[k:k + (1 << 16)]
            blocks.append((1, len(part), part[:1]) if m[1] else (0, len(part), part))
    out = b"\x28\xb5\x2f\xfd" + size
    for i, (typ, length, body) in enumerate(blocks):
        out += struct.pack("<I", (i == len(blocks) - 1) | typ << 1 | length << 3)[:3] + body
    return out


# ---------------------------------------------------------------- device code

def parse_image(text, cuda="12.6"):
    m = IMAGE.fullmatch(text)
    if not m:
        sys.exit("mkwheel: cannot read image %r (want sm_87, sm_90a, compute_120/9.0, lto_90)" % text)
    major, minor = m[4], m[5]
    if m[1] == "compute" and major is None:
        major, minor = ISA.get(cuda, "9.0").split(".")
    return m[1], int(m[2]), m[3], int(major or 1), int(minor or 0)


def compat(arch, suffix, cuda):
    """Contents of .nv.compat as ptxas 12.9 and 13.0 write it."""
    if not cuda.startswith("13"):
        return bytes.fromhex("02020100020505000203000002060100")
    chip = {100: 0x09, 120: 0x50}.get(arch, 0)
    return bytes.fromhex("0209%02x0002020100020505000307010102030000" "02060100040b0800%02x" % (suffix == "a", chip)) + bytes(7)


def cubin(arch, suffix="", cuda="12.6", bare=False):
    """A cubin with header, names, tool note, .nv.compat and 16 bytes of .text; enough for cuobjdump to list and extract.
    bare: header and section names alone, 208 bytes; still listed."""
    new = arch >= 100 or cuda.startswith("13")
    if new:
        flags = 0x06000000 | arch << 8 | (2 if arch >= 100 else 4) | (8 if suffix == "a" and cuda.startswith("12") else 0)
        ident, version = b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7), 1
    else:
        flags = arch << 16 | 0x500 | arch | (0x800 if suffix == "a" and arch >= 90 else 0)
        ident, version = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7), int(cuda.replace(".", ""))
    words, offs = b"\0", []
    for w in ("ptxas", "Cuda compilation tools, release %s, V%s.88" % (cuda, cuda),
              "Build cuda_%s.r%s/compiler.0_0" % (cuda, cuda), "-arch sm_%d%s " % (arch, suffix)):
        offs.append(len(words))
        words += w.encode() + b"\0"
    desc = pad(struct.pack("<6I", 2, 0, *offs) + words, 4)
    note = struct.pack("<3I", 12, len(desc), 2000) + b"NVIDIA Corp\0" + desc
    parts = [(b".text.k", 1, 6, bytes(16))]
    if new:
        parts.append((b".note.nv.tkinfo", 7, 0x1000000, note))
        if arch >= 100 or suffix == "a":
            parts.append((b".nv.compat", 0x70000086, 0, compat(arch, suffix, cuda)))
    names, body, rows = b"\0", b"", [bytes(64)]
    for name, typ, fl, data in () if bare else parts:
        rows.append(struct.pack("<IIQQQQIIQQ", len(names), typ, fl, 0, 64 + len(body), len(data), 0, 0, 4, 0))
        names += name + b"\0"
        body += pad(data, 8)
    rows.append(struct.pack("<IIQQQQIIQQ", len(names), 3, 0, 0, 64 + len(body), len(names) + 10, 0, 0, 1, 0))
    body += pad(names + b".shstrtab\0", 8)
    head = ident + struct.pack("<HHIQQQIHHHHHH", 2, 190, version, 0, 0, 64 + len(body), flags, 64, 56, 0, 64,
                               len(rows), len(rows) - 1)
    return head + body + b"".join(rows)


def ptx(arch, suffix, isa):
    return ("//\n// probe kernel %s\n//\n\n.version %s\n.target sm_%d%s\n.address_size 64\n\n"
            ".visible .entry k()\n{\n\tret;\n}\n\0" % ("-" * 64, isa, arch, suffix)).encode()


def payload(kind, arch, suffix, isa, cuda, how):
    seed = "%s %d%s %s" % (kind, arch, suffix, isa)
    if isinstance(how, int):
        return noise(seed, how)
    if kind == "lto":
        return noise(seed, 32) + b"\x81" * 64
    if kind == "compute":
        return ptx(arch, suffix, isa)
    return cubin(arch, suffix, cuda, bare=how == "bare")


def entry(text, cuda="12.6", how="cubin", compress=None):
    """One entry: header, extension and payload as the packer of that CUDA release lays them out.
    compress: None = the packer's default (PTX and LTO IR compressed, cubins raw), "none", "lz4" or "zstd"."""
    kind, arch, suffix, major, minor = parse_image(text, cuda)
    old, new = cuda.startswith(("9", "10", "11")), cuda.startswith("13")
    data = payload(kind, arch, suffix, "%d.%d" % (major, minor), cuda, how)
    if compress is None:
        compress = "none" if kind == "sm" or how != "cubin" else "zstd" if new else "lz4"
    flags = 0x11 | {"none": 0, "lz4": 0x2000, "zstd": 0x8000}[compress] | {"": 0, "a": 0x100000, "f": 0x200000}[suffix]
    stored, csize, usize, extra = data, 0, 0, 0
    if compress != "none":
        stored = {"lz4": lz4_block, "zstd": zstd_frame}[compress](data)
        csize, usize = len(stored), len(data)
    ext, at = b"", 0
    if kind == "sm":
        major, minor = 1, 8 if arch >= 100 or new else 7
        if arch >= 100:
            flags |= 0x1000000
            c = compat(arch, suffix, cuda)
            at, ext = 64, struct.pack("<II", 0x48, len(c)) + b"\0" + c
    elif kind == "lto":
        flags |= 0x10000
        major, minor, at, extra = 1, 65, 64, zlib.crc32(text.encode()) | 1
        opts = b"-ftz=0 -prec_div=1 -prec_sqrt=1 -fmad=1 \0"
        ext = struct.pack("<II", 0x48, len(opts) - 1) + opts
    else:
        at, ext = 64, bytes(8) if old else struct.pack("<IIQ", 0x48, 0, 0)
    ext = pad(ext, 8)
    stored = pad(stored, 8)
    return struct.pack("<HHIQIIHHIIIQQQ", KIND[kind], 0x101, 64 + len(ext), len(stored), csize, at, minor, major, arch,
                       0, 0, flags, extra, usize) + ext + stored


def fatbin(images, cuda="12.6", how="cubin"):
    body = b"".join(entry(i, cuda, how) for i in images)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def fatbins(rows, cuda, how, align):
    """Rows of images (or {"images", "count"}) -> section bytes and the offset of each fatbinary."""
    out, offs = bytearray(), []
    for row in rows:
        images, count = (row["images"], row.get("count", 1)) if isinstance(row, dict) else (row, 1)
        one = fatbin(images, cuda, how)
        for _ in range(count):
            out += bytes(-len(out) % align)
            offs.append(len(out))
            out += one
    return bytes(out), offs


# ---------------------------------------------------------------- host ELF

# e_machine, R_*_RELATIVE, ld.so, a function that returns (8 bytes), a program that exits with 0, alignment of fatbinaries
MACHINE = {"aarch64": (183, 1027, "/lib/ld-linux-aarch64.so.1", bytes.fromhex("c0035fd6") * 2,
                       bytes.fromhex("000080d2a80b80d2010000d4"), 256),
           "x86_64": (62, 8, "/lib64/ld-linux-x86-64.so.2", b"\xc3" + b"\x90" * 7, bytes.fromhex("31ffb83c0000000f05"), 8)}
SYMBOL = {"GLIBC_2.17": "memcpy", "GLIBC_2.27": "copy_file_range", "GLIBC_2.28": "fcntl64", "GLIBC_2.29": "getcpu",
          "GLIBC_2.32": "pthread_sigmask", "GLIBC_2.33": "fstat", "GLIBC_2.34": "dlsym", "GLIBC_2.35": "_dl_find_object",
          "GLIBC_2.38": "__isoc23_strtol", "GLIBCXX_3.4": "_ZSt4cout", "CXXABI_1.3": "__cxa_begin_catch"}


def elf_hash(name):
    h = 0
    for c in name.encode():
        h = (h << 4) + c
        h = (h ^ (h & 0xf0000000) >> 24) & 0x0fffffff
    return h


def gnu_hash(name):
    h = 5381
    for c in name.encode():
        h = h * 33 + c & 0xffffffff
    return h


class Strings:
    def __init__(self):
        self.data, self.at = bytearray(b"\0"), {"": 0}

    def __call__(self, s):
        if s not in self.at:
            self.at[s] = len(self.data)
            self.data += s.encode() + b"\0"
        return self.at[s]


def lowest(version):
    return [int(x) for x in re.findall(r"\d+", version)]


def elf(spec):
    e_machine, relative, interp, ret, leave, align = MACHINE[spec.get("machine", "aarch64")]
    cuda, how = spec.get("cuda", "12.6"), spec.get("payload", "cubin")
    needed = list(spec.get("needed", ()))
    versions = {k: list(v) for k, v in spec.get("versions", {}).items()}
    for key, lib, base, prefix in ("glibcxx", "libstdc++.so.6", "3.4", "GLIBCXX_"), ("glibc", "libc.so.6", "2.17", "GLIBC_"):
        if spec.get(key):
            want = sorted({base, spec[key]} if lowest(spec[key]) > lowest(base) else {spec[key]}, key=lowest)
            versions.setdefault(lib, []).extend(prefix + v for v in want if prefix + v not in versions.get(lib, ()))
            needed += [] if lib in needed else [lib]
    absent = set(versions) - set(needed)
    if absent:
        sys.exit("mkwheel: %s: versions of %s, which are not in needed" % (spec["path"], sorted(absent)))
    program = spec.get("program", False)

    # symbols: null, undefined ones with a version, undefined ones without, defined ones
    strs, syms, versym, verneed = Strings(), [bytes(24)], [0], b""
    for n in needed:
        strs(n)
    index, names = 2, [""]
    for i, (lib, vers) in enumerate(versions.items()):
        aux = b""
        for j, v in enumerate(vers):
            sym = SYMBOL.get(v) or "probe_" + re.sub(r"\W", "_", v)
            syms.append(struct.pack("<IBBHQQ", strs(sym), 0x12, 0, 0, 0, 0))
            names.append(sym)
            versym.append(index)
            aux += struct.pack("<IHHII", elf_hash(v), 0, index, strs(v), 16 if j < len(vers) - 1 else 0)
            index += 1
        verneed += struct.pack("<HHIII", 1, len(vers), strs(lib), 16, 16 + len(aux) if i < len(versions) - 1 else 0) + aux
    for s in spec.get("imports", ()):
        syms.append(struct.pack("<IBBHQQ", strs(s), 0x12, 0, 0, 0, 0))
        names.append(s)
        versym.append(1)
    first, exports = len(syms), list(spec.get("exports", ()))
    for s in exports:
        syms.append(s)                                   # filled in when .text has its address
        names.append(s)
        versym.append(1)
        strs(s)
    soname, runpath, rpath = (spec.get(k) for k in ("soname", "runpath", "rpath"))
    for s in (soname, runpath, rpath):
        strs(s or "")
    buckets = max(1, len(syms) // 2)
    heads, chain = [0] * buckets, [0] * len(syms)
    for i in range(1, len(syms)):
        b = elf_hash(names[i]) % buckets
        chain[i], heads[b] = heads[b], i
    sysv = struct.pack("<%dI" % (2 + buckets + len(syms)), buckets, len(syms), *heads, *chain)
    hashes = [gnu_hash(n) for n in exports]
    bloom = 0
    for h in hashes:
        bloom |= 1 << h % 64 | 1 << (h >> 6) % 64
    gnu = struct.pack("<IIIIQI", 1, first, 1, 6, bloom, first if exports else 0)
    gnu += b"".join(struct.pack("<I", h & ~1 | (i == len(hashes) - 1)) for i, h in enumerate(hashes))

    # device code
    regs, offs = {}, {}
    regs["__nv_relfatbin"], offs["__nv_relfatbin"] = fatbins(spec.get("relfatbins", ()), cuda, how, align)
    regs[".nv_fatbin"], offs[".nv_fatbin"] = fatbins([*spec.get("fatbins", ()), *spec.get("stubs", ())], cuda, how, align)
    stubs = sum(r.get("count", 1) if isinstance(r, dict) else 1 for r in spec.get("stubs", ()))
    offs[".nv_fatbin"] = offs[".nv_fatbin"][:len(offs[".nv_fatbin"]) - stubs]
    wrapped = [(sec, o) for sec in ("__nv_relfatbin", ".nv_fatbin") for o in offs[sec]]
    pools = {k: fatbins(v, cuda, how, 8)[0] for k, v in spec.get("pools", {}).items()}
    rodata = b"".join(s.encode() + b"\0" for s in spec.get("strings", ()))
    rodata = pad(b"\0" + rodata, 8) if rodata else b""
    rodata += b"".join(pad(loose_cubin(a), 8) for a in spec.get("raw_cubins", ())) + pools.pop(".rodata", b"")
    data = pools.pop(".data", b"")

    dyn = [(1, strs(n)) for n in needed]
    dyn += [(14, strs(soname))] if soname else []
    dyn += [(29, strs(runpath))] if runpath else []
    dyn += [(15, strs(rpath))] if rpath else []
    dyn += [(4, "@.hash"), (0x6ffffef5, "@.gnu.hash"), (5, "@.dynstr"), (6, "@.dynsym"), (10, len(strs.data)), (11, 24)]
    dyn += [(21, 0)] if program else []
    if wrapped:
        dyn += [(7, "@.rela.dyn"), (8, 24 * len(wrapped)), (9, 24)]
    if program:
        dyn += [(0x6ffffffb, 0x8000000)]                 # DF_1_PIE
    if versions:
        dyn += [(0x6ffffffe, "@.gnu.version_r"), (0x6fffffff, len(versions)), (0x6ffffff0, "@.gnu.version")]
    if wrapped:
        dyn += [(0x6ffffff9, len(wrapped))]
    dyn += [(0, 0)]

    ident = hashlib.sha1(json.dumps(spec, sort_keys=True).encode()).digest()
    # name, type, flags (write 1, alloc 2, exec 4), data, align, link, info, entsize
    sections = [(".interp", 1, 2, interp.encode() + b"\0", 1, "", 0, 0)] if program else []
    sections += [(".note.gnu.build-id", 7, 2, struct.pack("<III", 4, 20, 3) + b"GNU\0" + ident, 4, "", 0, 0),
                 (".gnu.hash", 0x6ffffff6, 2, gnu, 8, ".dynsym", 0, 0),
                 (".hash", 5, 2, sysv, 8, ".dynsym", 0, 4),
                 (".dynsym", 11, 2, bytes(24 * len(syms)), 8, ".dynstr", 1, 24),
                 (".dynstr", 3, 2, bytes(strs.data), 1, "", 0, 0)]
    if versions:
        sections += [(".gnu.version", 0x6fffffff, 2, struct.pack("<%dH" % len(versym), *versym), 2, ".dynsym", 0, 2),
                     (".gnu.version_r", 0x6ffffffe, 2, verneed, 8, ".dynstr", len(versions), 0)]
    if wrapped:
        sections += [(".rela.dyn", 4, 2, bytes(24 * len(wrapped)), 8, ".dynsym", 0, 24)]
    sections += [(".text", 1, 6, leave if program else ret * max(1, len(exports)), 8, "", 0, 0)]
    if rodata:
        sections += [(".rodata", 1, 2, rodata, 8, "", 0, 0)]
    sections += [(k, 1, 2, v, align, "", 0, 0) for k, v in regs.items() if v]
    sections += [(k, 1, 2, v, 8, "", 0, 0) for k, v in pools.items()]
    writable = len(sections)
    sections += [(".dynamic", 6, 3, bytes(16 * len(dyn)), 8, ".dynstr", 0, 16)]
    if data:
        sections += [(".data", 1, 3, data, 8, "", 0, 0)]
    if wrapped:
        sections += [(".nvFatBinSegment", 1, 3, bytes(24 * len(wrapped)), 8, "", 0, 0)]
    loaded = len(sections)
    shstr = Strings()
    for s in sections:
        shstr(s[0])
    for s in (".comment", ".shstrtab"):
        shstr(s)
    sections += [(".comment", 1, 0x30, b"mkwheel\0", 1, "", 0, 1), (".shstrtab", 3, 0, bytes(shstr.data), 1, "", 0, 0)]

    # layout: everything up to .dynamic in one readable segment at address = offset, the rest 64 KiB further up
    phnum = 5 + 2 * program
    pos, off, addr = 64 + 56 * phnum, [], []
    for i, s in enumerate(sections):
        pos += -pos % (8 if i == writable else s[4])
        off.append(pos)
        addr.append(0 if i >= loaded else pos if i < writable else pos + 0x10000)
        pos += len(s[3])
    where = {s[0]: i for i, s in enumerate(sections)}
    blob = {s[0]: s[3] for s in sections}
    text = addr[where[".text"]]
    for i in range(first, len(syms)):
        syms[i] = struct.pack("<IBBHQQ", strs(syms[i]), 0x12, 0, where[".text"] + 1, text + 8 * (i - first), 8)
    blob[".dynsym"] = b"".join(syms)
    blob[".dynamic"] = b"".join(struct.pack("<QQ", t, addr[where[v[1:]]] if isinstance(v, str) else v) for t, v in dyn)
    if wrapped:
        seg = addr[where[".nvFatBinSegment"]]
        targets = [addr[where[s]] + o for s, o in wrapped]
        blob[".nvFatBinSegment"] = b"".join(struct.pack("<IIQQ", 0x466243B1, 1, t, 0) for t in targets)
        blob[".rela.dyn"] = b"".join(struct.pack("<QQq", seg + 24 * i + 8, relative, t) for i, t in enumerate(targets))

    def segment(typ, flags, a, b, align):
        n = off[b] + len(sections[b][3]) - off[a]
        return struct.pack("<IIQQQQQQ", typ, flags, off[a], addr[a], addr[a], n, n, align)
    end = off[writable - 1] + len(sections[writable - 1][3])
    ph = []
    if program:
        ph += [struct.pack("<IIQQQQQQ", 6, 4, 64, 64, 64, 56 * phnum, 56 * phnum, 8), segment(3, 4, 0, 0, 1)]
    ph += [struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, end, end, 0x10000), segment(1, 6, writable, loaded - 1, 0x10000),
           segment(2, 6, writable, writable, 8)]
    note = where[".note.gnu.build-id"]
    ph += [segment(4, 4, note, note, 4), struct.pack("<IIQQQQQQ", 0x6474e551, 6, 0, 0, 0, 0, 0, 16)]
    shoff = pos + -pos % 8
    out = bytearray(shoff)
    out[:64] = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", 3, e_machine, 1, text if program else 0, 64, shoff, 0, 64, 56, phnum, 64, len(sections) + 1, len(sections))
    out[64:64 + 56 * phnum] = b"".join(ph)
    table = bytes(64)
    for i, (name, typ, flags, body, al, link, info, entsize) in enumerate(sections):
        out[off[i]:off[i] + len(body)] = blob[name]
        table += struct.pack("<IIQQQQIIQQ", shstr(name), typ, flags, addr[i], off[i], len(body),
                             where[link] + 1 if link else 0, info, al, entsize)
    return bytes(out) + table


def compiler(path, spec):
    """A program that names its targets the way ptxas does: NUL-delimited strings, and a version line."""
    cuda = spec.get("cuda", "13.0.88")
    release = ".".join(cuda.split(".")[:2])
    strings = ["Cuda compilation tools, release %s, V%s" % (release, cuda), "Build cuda_%s.r%s/compiler.0_0" % (release, release)]
    base = {"path": path, "program": os.path.basename(path).startswith("ptxas"), "glibc": "2.17",
            "strings": strings + list(spec.get("targets", ()))}
    return elf({**base, **spec.get("elf", {})})


# ---------------------------------------------------------------- wheel

def loose_cubin(arch):
    """The newest fixture of that arch, else one made here."""
    found = sorted(CUBINS.glob("cu*-%s.cubin" % arch))
    if found:
        return found[-1].read_bytes()
    _, sm, suffix, _, _ = parse_image(arch)
    return cubin(sm, suffix, "13.0" if sm in (88, 110, 107) else "12.9" if sm >= 100 else "12.6")


def dist(filename):
    """(distribution, version, build or None, python tags, abi tags, platform tags) of a wheel's file name."""
    p = filename[:-4].split("-")
    if not filename.endswith(".whl") or len(p) not in (5, 6):
        sys.exit("mkwheel: %r is no wheel file name" % filename)
    return p[0], p[1], p[2] if len(p) == 6 else None, *(x.split(".") for x in p[-3:])


def metadata(spec):
    name, version, *_ = dist(spec["filename"])
    lines = ["Metadata-Version: 2.1", "Name: " + spec.get("name", name.replace("_", "-")),
             "Version: " + spec.get("version", version), "Summary: Probe wheel, made from facts"]
    lines += ["Requires-Python: " + spec["requires_python"]] if spec.get("requires_python") else []
    lines += ["Provides-Extra: " + x for x in spec.get("provides_extra", ())]
    lines += ["Requires-Dist: " + r for r in spec.get("requires_dist", ())]
    return "\n".join(lines) + "\n"


def members(spec):
    """(path, bytes, executable) of every member, RECORD last."""
    name, version, build, pys, abis, plats = dist(spec["filename"])
    info = "%s-%s.dist-info" % (name, version)
    out = [(p, d if isinstance(d, bytes) else d.encode(), False) for p, d in spec.get("files", {}).items()]
    out += [(e["path"], elf(e), bool(e.get("program"))) for e in spec.get("elfs", ())]
    out += [(p, compiler(p, c), True) for p, c in spec.get("compilers", {}).items()]
    out += [(p, loose_cubin(a), False) for p, a in spec.get("cubins", {}).items()]
    pure = not (spec.get("elfs") or spec.get("compilers"))
    wheel = "Wheel-Version: 1.0\nGenerator: mkwheel\nRoot-Is-Purelib: %s\n" % str(pure).lower()
    tags = spec.get("tags") or ["%s-%s-%s" % (a, b, c) for a in pys for b in abis for c in plats]
    wheel += "".join("Tag: %s\n" % t for t in tags)
    wheel += "Build: %s\n" % build if build else ""
    out += [(info + "/METADATA", metadata(spec).encode(), False), (info + "/WHEEL", wheel.encode(), False)]
    record = "".join("%s,sha256=%s,%d\n" % (
        '"%s"' % p if "," in p else p, base64.urlsafe_b64encode(hashlib.sha256(d).digest()).decode().rstrip("="), len(d))
        for p, d, _ in out)
    return out + [(info + "/RECORD", (record + info + "/RECORD,,\n").encode(), False)]


def wheel_bytes(spec):
    buf = io.BytesIO()
    with zipfile.ZipFile(buf, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as z:
        for path, data, executable in members(spec):
            info = zipfile.ZipInfo(path, (2024, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, (0o100755 if executable else 0o100644) << 16
            # repeated kernels deflate absurdly well: store those, or a guard against zip bombs would rightly object
            dense = len(zlib.compress(data, 6)) * 30 > len(data)
            info.compress_type = zipfile.ZIP_DEFLATED if dense else zipfile.ZIP_STORED
            z.writestr(info, data)
    return buf.getvalue()


def build(spec, folder):
    """Writes the wheel into the folder and returns its path."""
    path = pathlib.Path(folder) / spec["filename"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wheel_bytes(spec))
    return path


def quick_spec(a):
    name, _, _, pys, _, _ = dist(a.what)
    spec = {"filename": a.what, "requires_dist": a.requires, "requires_python": a.requires_python,
            "files": {name + "/__init__.py": ""}, "cubins": {"%s/k%d.cubin" % (name, i): c for i, c in enumerate(a.cubin)}}
    if a.version:
        spec["version"] = a.version
    images = a.sass + a.ptx
    if images or a.needed or a.glibc or a.glibcxx:
        spec["elfs"] = [{"path": name + "/_C.so", "soname": "_C.so", "needed": a.needed, "glibc": a.glibc or "2.17",
                         "glibcxx": a.glibcxx, "cuda": a.cuda, "exports": ["PyInit__C"],
                         "fatbins": [{"images": images, "count": a.fatbins}] if images else []}]
    if a.ptxas:
        spec["compilers"] = {name + "/bin/ptxas": {"targets": a.ptxas, "cuda": a.cuda}}
    return spec


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", help="SPEC.json, or the file name of a wheel to make from the options")
    p.add_argument("-o", "--output", default=".")
    for o in "sass", "ptx", "needed", "requires", "ptxas", "cubin":
        p.add_argument("--" + o, action="append", default=[])
    for o in "glibc", "glibcxx", "requires-python", "version":
        p.add_argument("--" + o)
    p.add_argument("--fatbins", type=int, default=1)
    p.add_argument("--cuda", default="12.6")
    a = p.parse_args()
    if a.what.endswith(".json"):
        specs = json.loads(pathlib.Path(a.what).read_text())
        specs = specs if isinstance(specs, list) else [specs]
    else:
        specs = [quick_spec(a)]
    for s in specs:
        path = build(s, a.output)
        print(path, hashlib.sha256(path.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
