//! The facts that come with the program: those of wheels that many sites meet, so that a new site knows their verdicts before
//! it downloads anything. They count by digest alone: bytes that nobody has inspected have no verdict.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::digest::Sha256;
use crate::wheel::Facts;

/// The texts of the files of `index/facts/`, which are listed by hand so that no build script has to look for them.
macro_rules! files {
    ($($name:literal)*) => {
        [$(include_str!(concat!("../../index/facts/", $name, ".json"))),*]
    };
}

const FILES: [&str; 36] = files! {
    "bitsandbytes-0.46.1-py3-none-manylinux_2_24_aarch64"
    "ctranslate2-4.8.5-cp312-cp312-manylinux_2_27_aarch64.manylinux_2_28_aarch64"
    "cuda_toolkit-13.0.2-py2.py3-none-any"
    "cupy_cuda12x-13.6.0-cp312-cp312-manylinux2014_aarch64"
    "cupy_cuda13x-14.2.0-cp312-cp312-manylinux2014_aarch64"
    "flashinfer_python-0.7.2-py3-none-any"
    "jax_cuda12_plugin-0.12.0.1-cp312-cp312-manylinux_2_27_aarch64"
    "jax_cuda13_plugin-0.12.0.1-cp312-cp312-manylinux_2_27_aarch64"
    "jaxlib-0.12.0.1-cp312-cp312-manylinux_2_27_aarch64"
    "numba_cuda-0.30.4-cp312-cp312-manylinux_2_24_aarch64.manylinux_2_28_aarch64"
    "nvidia_cublas-13.1.0.3-py3-none-manylinux_2_27_aarch64"
    "nvidia_cublas-13.1.1.3-py3-none-manylinux_2_27_aarch64"
    "nvidia_cublas-13.2.1.1-py3-none-manylinux_2_27_aarch64"
    "nvidia_cublas_cu12-12.6.4.1-py3-none-manylinux_2_27_aarch64"
    "nvidia_cublas_cu12-12.9.1.4-py3-none-manylinux_2_27_aarch64"
    "nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64"
    "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64"
    "nvidia_cudnn_cu12-9.10.2.21-py3-none-manylinux_2_27_aarch64"
    "nvidia_cudnn_cu13-9.19.0.56-py3-none-manylinux_2_27_aarch64"
    "nvidia_cusolver-12.0.4.66-py3-none-manylinux_2_27_aarch64"
    "nvidia_cusparse-12.6.3.3-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64"
    "nvidia_cusparselt_cu13-0.8.0-py3-none-manylinux2014_aarch64"
    "nvidia_nccl_cu12-2.27.5-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64"
    "nvidia_nvjitlink-13.0.88-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64"
    "nvidia_nvshmem_cu13-3.4.5-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64"
    "onnxruntime-1.23.2-cp312-cp312-manylinux_2_27_aarch64.manylinux_2_28_aarch64"
    "opencv_python-5.0.0.93-cp37-abi3-manylinux2014_aarch64.manylinux_2_17_aarch64"
    "torch-2.10.0-cp312-cp312-manylinux_2_28_aarch64"
    "torch-2.11.0-cp312-cp312-manylinux_2_28_aarch64"
    "torch-2.5.1-cp312-cp312-manylinux2014_aarch64"
    "torch-2.9.1-cp312-cp312-manylinux_2_28_aarch64"
    "torchaudio-2.10.0-cp312-cp312-manylinux_2_28_aarch64"
    "torchaudio-2.11.0-cp312-cp312-manylinux_2_28_aarch64"
    "torchvision-0.26.0-cp312-cp312-manylinux_2_28_aarch64"
    "triton-3.6.0-cp312-cp312-manylinux_2_27_aarch64.manylinux_2_28_aarch64"
    "ultralytics-8.4.190-py3-none-any"
};

static SHIPPED: LazyLock<HashMap<Sha256, Arc<Facts>>> = LazyLock::new(|| {
    let parsed = FILES.iter().filter_map(|text| serde_json::from_str::<Facts>(text).ok());
    parsed.filter(Facts::are_current).map(|facts| (facts.sha256, Arc::new(facts))).collect()
});

/// The shipped facts of a file, if they are those of its digest and name.
pub(super) fn facts(sha256: &Sha256, file: &str) -> Option<Arc<Facts>> {
    SHIPPED.get(sha256).filter(|facts| facts.file == file).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_listed_and_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/index/facts");
        let mut count = 0;
        for entry in fs_err::read_dir(folder).unwrap() {
            let text = fs_err::read_to_string(entry.unwrap().path()).unwrap();
            let known: Facts = serde_json::from_str(&text).unwrap();
            assert_eq!(facts(&known.sha256, &known.file).as_deref(), Some(&known), "{}", known.file);
            assert_eq!(facts(&known.sha256, "other-1.0-py3-none-any.whl"), None);
            count += 1;
        }
        assert_eq!(count, FILES.len());
    }
}
