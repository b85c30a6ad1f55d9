"""Reads pylock.toml and requirements.txt of a folder with `packaging`: python3 check_lock.py FOLDER."""

import pathlib
import sys
import tomllib

try:
    from packaging.requirements import Requirement
except ImportError:  # pip brings a copy of its own
    from pip._vendor.packaging.requirements import Requirement

folder = pathlib.Path(sys.argv[1])
document = tomllib.loads((folder / "pylock.toml").read_text())
assert document["lock-version"] == "1.0", document
pins = {package["name"]: package["version"] for package in document["packages"]}
for package in document["packages"]:
    for wheel in package["wheels"]:
        assert wheel["hashes"]["sha256"] and wheel["url"] and wheel["size"] > 0, wheel
    assert all(dependency["name"] in pins for dependency in package.get("dependencies", [])), package
try:
    from packaging.pylock import Pylock
except ImportError:
    pass
else:
    Pylock.from_dict(document).validate()

text = (folder / "requirements.txt").read_text().replace("\\\n", " ")
stated = {}
for line in text.splitlines():
    if line and not line.startswith(("#", "-")):
        requirement, digest = line.split(" --hash=sha256:")
        requirement = Requirement(requirement.strip())
        assert len(digest) == 64, line
        stated[requirement.name] = str(requirement.specifier).removeprefix("==")
assert stated == pins, (stated, pins)
