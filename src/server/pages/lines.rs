//! What to copy and paste for a device.

use serde::Serialize;

use crate::policy::{DeviceProfile, Stack, container_image};

/// Lines for one device.
#[derive(Debug, Serialize)]
pub(super) struct Lines {
    /// The index.
    pub(super) index: String,
    /// For pip.
    pub(super) pip: String,
    /// For `pip.conf`.
    pub(super) pip_conf: String,
    /// For uv.
    pub(super) uv: String,
    /// For `pyproject.toml` of a project that uv keeps.
    pub(super) uv_project: String,
    /// For poetry.
    pub(super) poetry: String,
    /// A Dockerfile.
    pub(super) dockerfile: String,
    /// Sets all of that up on a device.
    pub(super) setup: String,
}

impl Lines {
    /// Lines for a device by a mirror that is reached at `base`.
    pub(super) fn of(device: &DeviceProfile, base: &str) -> Self {
        let index = format!("{base}/{}/simple/", device.id);
        let trust = trusted(base);
        let option = trust.as_ref().map(|host| format!(" --trusted-host {host}")).unwrap_or_default();
        let line = trust.as_ref().map(|host| format!("trusted-host = {host}\n")).unwrap_or_default();
        let variable =
            trust.as_ref().map(|host| format!(" \\\n    PIP_TRUSTED_HOST={host}")).unwrap_or_default();
        let insecure =
            trust.as_ref().map(|host| format!("export UV_INSECURE_HOST={host}\n")).unwrap_or_default();
        Self {
            pip: format!("pip install --index-url {index}{option} torch"),
            pip_conf: format!("[global]\nindex-url = {index}\n{line}"),
            uv: format!("{insecure}uv pip install --default-index {index} torch"),
            uv_project: format!(
                "[[tool.uv.index]]\nname = \"jetwheel\"\nurl = \"{index}\"\ndefault = true\n"
            ),
            poetry: format!("poetry source add --priority=primary jetwheel {index}\npoetry add torch"),
            dockerfile: format!(
                "FROM {}\nRUN apt-get update && apt-get install -y --no-install-recommends python3-pip && rm -rf /var/lib/apt/lists/*\n\
                 ENV PIP_INDEX_URL={index}{variable}\nRUN python3 -m pip install{} torch\n",
                image(device),
                if device.python.minor() >= 11 { " --break-system-packages" } else { "" }
            ),
            setup: format!("curl -fsS {base}/{}/setup.sh -o setup.sh && sh setup.sh", device.id),
            index,
        }
    }
}

/// The host that pip has to be told to trust; none behind https, or on the machine itself.
fn trusted(base: &str) -> Option<String> {
    let host = base.strip_prefix("http://")?.split('/').next()?;
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    (!["localhost", "127.0.0.1", "[::1]"].contains(&name)).then(|| name.to_owned())
}

/// An image to begin with. From JetPack 7 on, and on Arm servers, NVIDIA's plain CUDA images run.
fn image(device: &DeviceProfile) -> String {
    let release = device.l4t.last().map_or("", String::as_str);
    match container_image(release) {
        Some(image) if device.stack == Stack::TegraNvgpu => image.to_owned(),
        _ => {
            let ubuntu = device.os.as_deref().and_then(|os| os.strip_prefix("Ubuntu ")).unwrap_or("24.04");
            let (major, minor) = device.driver_cuda.release();
            format!("nvcr.io/nvidia/cuda:{major}.{minor}.0-base-ubuntu{ubuntu}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn lines_go_by_how_the_mirror_is_reached() {
        let policy = Policy::builtin();
        let lines = |id: &str, base: &str| Lines::of(policy.device(id).unwrap(), base);
        let plain = lines("orin-jp6.2", "http://mirror:8080");
        assert_eq!(
            plain.pip,
            "pip install --index-url http://mirror:8080/orin-jp6.2/simple/ --trusted-host mirror torch"
        );
        assert!(
            plain.dockerfile.contains("l4t-jetpack:r36.4.0")
                && plain.dockerfile.contains("PIP_TRUSTED_HOST=mirror")
        );
        let https = lines("orin-jp6.2", "https://x.test/mirror");
        assert_eq!(https.pip, "pip install --index-url https://x.test/mirror/orin-jp6.2/simple/ torch");
        assert!(!https.dockerfile.contains("TRUSTED") && !https.pip_conf.contains("trusted"));
        let images = ["nano-jp4.6.1", "xavier-jp5.1.2", "orin-jp6.0", "thor-jp7.0"];
        let images = images.map(|id| image(policy.device(id).unwrap()));
        assert_eq!(
            images,
            [
                "nvcr.io/nvidia/l4t-base:r32.7.1",
                "nvcr.io/nvidia/l4t-jetpack:r35.4.1",
                "nvcr.io/nvidia/l4t-jetpack:r36.3.0",
                "nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04"
            ]
        );
    }
}
