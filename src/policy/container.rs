//! NVIDIA's container images for Jetson: `policies/containers.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

/// One image.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    /// How the L4T releases begin that it is for.
    l4t: Vec<String>,
    /// Its name and tag.
    #[serde(rename = "image")]
    name: String,
    /// What says so.
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Debug, Deserialize)]
struct File {
    image: Vec<Image>,
}

static IMAGES: LazyLock<Vec<Image>> =
    LazyLock::new(|| super::tables::builtin::<File>(include_str!("../../policies/containers.toml")).image);

/// The image for devices of an L4T release, `36.4.3`.
pub fn container_image(l4t: &str) -> Option<&'static str> {
    let image = IMAGES.iter().find(|image| image.l4t.iter().any(|start| l4t.starts_with(start.as_str())));
    image.map(|image| image.name.as_str())
}
