//! Advice about GPUs, CUDA and NCCL.

use super::{Advice, advice as say};
use crate::reason::Reason;

pub(super) fn advice(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::CudaOutOfMemory => say(
            &[
                "{who} used up the memory of its GPU: it tried to get {asked} more",
                "{who} used up the memory of its GPU",
            ],
            &[
                ("@local see who uses it", "nvidia-smi"),
                ("use less: a smaller batch, gradient accumulation, mixed precision, activation checkpointing", ""),
                ("where much is reserved but unused, let the allocator grow its segments", "{rerun_segments}"),
            ],
        ),
        Reason::NoGpu => say(
            &["{who} sees no GPU: {message}", "{who} sees no GPU"],
            &[
                ("@local see whether this machine has one", "nvidia-smi"),
                (
                    "see what the framework was built with",
                    "{python} -c 'import torch; print(torch.version.cuda, torch.cuda.is_available())'",
                ),
                ("ask for GPUs", "{rerun_gpus}"),
                (
                    "@cluster ask for GPUs (trainyard run --gpus N); the nodes have these",
                    "{kubectl} get nodes -o custom-columns=NAME:.metadata.name,GPUS:.status.allocatable.nvidia\\.com/gpu",
                ),
                ("or train on the CPU: backend gloo, device cpu", ""),
            ],
        ),
        Reason::DriverTooOld => say(
            &[
                "the NVIDIA driver (CUDA {version}) is older than what the framework was built for",
                "the NVIDIA driver is too old for the framework",
            ],
            &[
                ("see driver and CUDA version", "nvidia-smi"),
                ("update the driver, or install a build of the framework for the driver's CUDA version", ""),
            ],
        ),
        Reason::InvalidDevice => say(
            &["{who} asked for a GPU that does not exist: there are more processes on the node than GPUs"],
            &[
                ("see how many there are", "nvidia-smi -L"),
                ("start as many processes as there are GPUs on a node", "{rerun_nproc}"),
                ("use LOCAL_RANK, not RANK, to choose the device", ""),
            ],
        ),
        Reason::CudaAssertion => say(
            &["a kernel on the GPU of {who} found a wrong value: mostly a label or index out of range"],
            &[
                ("make it stop at the operation that fails", "{rerun_blocking}"),
                ("check that labels are in 0..classes-1, and token ids in the vocabulary", ""),
            ],
        ),
        Reason::CudaMismatch => say(
            &[
                "the framework's CUDA code does not fit this GPU or its libraries: {message}",
                "the framework's CUDA code does not fit this GPU or its libraries",
            ],
            &[
                (
                    "see what it was built for",
                    "{python} -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.get_arch_list())'",
                ),
                ("install one build of torch and its extensions for this GPU and CUDA version", ""),
            ],
        ),
        Reason::CudaError => say(
            &["CUDA reported an error in {who}: {message}", "CUDA reported an error in {who}"],
            &[("make it stop at the operation that fails", "{rerun_blocking}"), ("see how the GPUs are", "nvidia-smi")],
        ),
        Reason::GpuLost => say(
            &["a GPU of {who} failed: {message}", "a GPU failed"],
            &[
                ("see how the GPUs are", "nvidia-smi -q -d ECC,PAGE_RETIREMENT"),
                ("@cluster keep pods off the node until it is mended", "{kubectl} cordon {node}"),
            ],
        ),
        Reason::NcclError => say(
            &["NCCL failed in {who}: {message}", "NCCL failed in {who}"],
            &[
                ("let NCCL say what it does", "{rerun_nccl}"),
                ("where hosts have several networks, name the one to use: --env NCCL_SOCKET_IFNAME=eth0", ""),
                ("two processes must not use one GPU: choose the device by LOCAL_RANK", ""),
            ],
        ),
        Reason::NcclTimeout => say(
            &[
                "{who} waited {seconds} for the other ranks in {operation}: not all of them took part",
                "the other ranks did not join {who} in a collective operation",
            ],
            &[
                ("see which rank did not take part: compare their last lines", "trainyard logs {job} --tail 5{flags}"),
                ("let PyTorch name the rank and the operation", "{rerun_nccl}"),
                (
                    "all ranks must call the same operations: look for branches on rank, and for unequal numbers of batches",
                    "",
                ),
            ],
        ),
        Reason::DeviceMismatch => say(
            &[
                "tensors on different devices are used together at {place}: {message}",
                "tensors on different devices are used together",
            ],
            &[
                ("move them to one device in {file} at line {line}, then run it again", "{rerun}"),
                ("move them to one device, then run it again", "{rerun}"),
            ],
        ),
        _ => None,
    }
}
