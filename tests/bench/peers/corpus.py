"""Wheels to serve: `page` with 1,000 files, `app` that needs dep00 to dep18 of 10 versions each, one big wheel, and small ones to fill up."""
import base64, hashlib, os, random, zipfile

STAMP = (2024, 1, 1, 0, 0, 0)


def _row(path, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return "%s,sha256=%s,%d\n" % (path, digest, len(data))


def wheel(folder, name, version, requires=(), payload=2000, rng=random.Random(7)):
    """A pure wheel of some 3 kB; `payload` beyond a million is written as stored blocks."""
    info = "%s-%s.dist-info" % (name, version)
    path = os.path.join(folder, "%s-%s-py3-none-any.whl" % (name, version))
    metadata = "Metadata-Version: 2.1\nName: %s\nVersion: %s\nRequires-Python: >=3.8\n" % (name, version)
    metadata += "".join("Requires-Dist: %s\n" % r for r in requires) + "\n" + "A wheel to measure with.\n" * 20
    members = [("%s/__init__.py" % name, b"# %s\n" % rng.randbytes(min(payload, 2000) // 2).hex().encode()), (info + "/METADATA", metadata.encode()),
               (info + "/WHEEL", b"Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n")]
    record = "".join(_row(*m) for m in members)
    with zipfile.ZipFile(path, "w") as z:
        if payload > 1_000_000:
            block, digest = rng.randbytes(1 << 20), hashlib.sha256()
            with z.open(zipfile.ZipInfo(name + "/data.bin", STAMP), "w", force_zip64=True) as out:
                for at in range(0, payload, len(block)):
                    piece = (block[at % 4093:] + block[:at % 4093])[:payload - at]
                    out.write(piece)
                    digest.update(piece)
            record += "%s/data.bin,sha256=%s,%d\n" % (name, base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode(), payload)
        for member, data in members + [(info + "/RECORD", (record + info + "/RECORD,,\n").encode())]:
            z.writestr(zipfile.ZipInfo(member, STAMP), data, zipfile.ZIP_DEFLATED)


def make(shared, filling, wheels, page, big_mb):
    """`shared` is what every server gets; `filling` brings the number of wheels to `wheels`."""
    for folder in (shared, filling):
        os.makedirs(folder, exist_ok=True)
    for i in range(page):
        wheel(shared, "page", "1.%d" % i)
    for d in range(19):
        for i in range(10):
            wheel(shared, "dep%02d" % d, "1.%d" % i, ["dep%02d>=1.0" % e for e in range(d + 1, min(d + 4, 19))])
    wheel(shared, "app", "1.0", ["dep%02d" % d for d in range(19)])
    wheel(shared, "big", "1.0", payload=big_mb * 1_000_000)
    for i in range(wheels - page - 192):
        wheel(filling, "fill%04d" % (i // 10), "1.%d" % (i % 10))
