//! Wheels for a quickstart without an index: small real cubins, packed here.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zip::write::SimpleFileOptions;

use crate::digest::Sha256;
use crate::wheel::ProjectName;

/// Cubins by NVIDIA's own ptxas: of CUDA 12.9 for Orin, of CUDA 13.0 for Thor; how, says `MAKE.md` in their folder.
const KERNELS: [(&str, &str, &[u8]); 3] = [
    ("kernels_demo", "1.0", include_bytes!("../../../tests/data/fatbin/cubin/cu129-sm_87.cubin")),
    ("kernels_demo", "2.0", include_bytes!("../../../tests/data/fatbin/cubin/cu130-sm_110.cubin")),
    ("plain_demo", "1.0", b""),
];

/// Builds the wheels into a folder and yields their projects.
pub(super) fn build(folder: &Path) -> anyhow::Result<Vec<ProjectName>> {
    let mut projects = Vec::new();
    for (name, version, cubin) in KERNELS {
        let tag = if cubin.is_empty() { "py3-none-any" } else { "py3-none-linux_aarch64" };
        let info = format!("{name}-{version}.dist-info");
        let mut members = vec![(format!("{name}/__init__.py"), Vec::new())];
        if !cubin.is_empty() {
            members.push((format!("{name}/{name}.cubin"), cubin.to_vec()));
        }
        let metadata =
            format!("Metadata-Version: 2.1\nName: {}\nVersion: {version}\n", name.replace('_', "-"));
        members.push((format!("{info}/METADATA"), metadata.into_bytes()));
        let wheel = format!(
            "Wheel-Version: 1.0\nGenerator: jetwheel\nRoot-Is-Purelib: {}\nTag: {tag}\n",
            cubin.is_empty()
        );
        members.push((format!("{info}/WHEEL"), wheel.into_bytes()));
        members.push((format!("{info}/RECORD"), record(&members, &info)));

        let file = fs_err::File::create(folder.join(format!("{name}-{version}-{tag}.whl")))?;
        let mut archive = zip::ZipWriter::new(file);
        for (path, bytes) in members {
            archive.start_file(path, SimpleFileOptions::default())?;
            archive.write_all(&bytes)?;
        }
        archive.finish()?;
        let project: ProjectName = name.parse()?;
        if !projects.contains(&project) {
            projects.push(project);
        }
    }
    Ok(projects)
}

/// RECORD (PEP 376): path, `sha256=` in URL-safe base64 without padding, size.
fn record(members: &[(String, Vec<u8>)], info: &str) -> Vec<u8> {
    let mut lines = String::new();
    for (path, bytes) in members {
        let digest = URL_SAFE_NO_PAD.encode(Sha256::of(bytes).0);
        // Writing into a String cannot fail.
        let _infallible = writeln!(lines, "{path},sha256={digest},{}", bytes.len());
    }
    let _infallible = writeln!(lines, "{info}/RECORD,,");
    lines.into_bytes()
}
