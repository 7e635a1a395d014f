//! Advice about everyday mistakes: files, text, processes, gradients, compilers and installers.

use super::{Advice, advice as say};
use crate::reason::Reason;

const MEND: (&str, &str) = ("correct {file} at line {line}, then run it again", "{rerun}");
const AGAIN: (&str, &str) = ("correct it, then run it again", "{rerun}");

pub(super) fn advice(reason: Reason) -> Option<Advice> {
    files(reason).or_else(|| programs(reason)).or_else(|| training(reason))
}

fn files(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::WrongKindOfPath => say(
            &[
                "{path} is a folder where a file is needed, or the other way round",
                "a path is a folder where a file is needed, or the other way round",
            ],
            &[("@local see what it is", "ls -ld {quoted_path}"), ("give the right path, then run it again", "{rerun}")],
        ),
        Reason::FileExists => say(
            &["{path} is there already", "a file or folder that is to be made is there already"],
            &[
                ("@local see what it is", "ls -ld {quoted_path}"),
                ("choose another path, allow it (exist_ok=True), or let one rank make it alone", ""),
                AGAIN,
            ],
        ),
        Reason::DamagedFile => say(
            &[
                "a file that {who} reads at {place} is damaged, cut off or of another format: {message}",
                "a file that {who} reads is damaged, cut off or of another format: {message}",
                "a file that {who} reads is damaged, cut off or of another format",
            ],
            &[
                ("look at its size and first bytes: an empty file, a Git LFS pointer and an HTML page are common", ""),
                ("fetch or write it again; write checkpoints to another name and rename them when they are whole", ""),
                MEND,
                AGAIN,
            ],
        ),
        Reason::CheckpointRefused => say(
            &["{who} loads a checkpoint that holds more than weights, which torch.load refuses by default"],
            &[
                (
                    "if you trust the file: torch.load(path, weights_only=False), or torch.serialization.add_safe_globals",
                    "",
                ),
                ("it is better to save only the state_dict", ""),
                MEND,
                AGAIN,
            ],
        ),
        Reason::StorageError => say(
            &[
                "a disk or network file system failed under {who}: {message}",
                "a disk or network file system failed under {who}",
            ],
            &[
                ("@local see what the kernel says", "dmesg -T | tail -20"),
                ("@local see what is mounted", "findmnt"),
                ("@cluster see the volumes, and what their driver says", "{kubectl} get pvc,events"),
                ("when it is back, run it again", "{rerun}"),
            ],
        ),
        Reason::EncodingError => say(
            &[
                "text is in another encoding than it was read or written with at {place}: {message}",
                "text is in another encoding than it was read or written with: {message}",
                "text is in another encoding than it was read or written with",
            ],
            &[
                ("name the encoding: open(path, encoding=...); a binary file is opened with \"rb\"", ""),
                ("let Python take UTF-8 everywhere", "{rerun_utf8}"),
            ],
        ),
        _ => None,
    }
}

fn programs(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::NoTerminal => say(
            &[
                "{who} asked a question at {place}, and a job has no terminal to answer it",
                "{who} asked a question, and a job has no terminal to answer it",
            ],
            &[("answer beforehand: by an argument, a variable or a flag such as --yes", ""), AGAIN],
        ),
        Reason::ShellSyntax => say(
            &["the shell cannot read {file}, line {line}: {message}", "a shell could not read a script"],
            &[("see the place", "sh -n {file}"), MEND, AGAIN],
        ),
        Reason::NotPicklable => say(
            &[
                "an object cannot be handed to a worker process at {place}: {message}",
                "an object cannot be handed to a worker process",
            ],
            &[("use functions of a module's top level, no lambdas or open files; or num_workers=0", ""), MEND, AGAIN],
        ),
        Reason::ProcessStart => say(
            &[
                "{who} starts processes in a way that does not work: {message}",
                "{who} starts processes in a way that does not work",
            ],
            &[
                (
                    "begin the script's own work under if __name__ == \"__main__\":, and touch CUDA only in the new processes",
                    "",
                ),
                ("set the start method once: torch.multiprocessing.set_start_method(\"spawn\", force=True)", ""),
                MEND,
                AGAIN,
            ],
        ),
        Reason::RecursionTooDeep => say(
            &["a function called itself too often in {who}, at {place}", "a function called itself too often in {who}"],
            &[MEND, AGAIN],
        ),
        Reason::ModuleHidden => say(
            &[
                "{path} hides the module {module}",
                "module {module} is not ready when it is used: modules import each other, or a file of yours is called like a library",
                "modules import each other, or a file of yours is called like a library",
            ],
            &[
                (
                    "@local see which file is taken",
                    "{python} -c 'import importlib.util as u; print(u.find_spec(\"{module}\").origin)'",
                ),
                (
                    "rename a file of your own that is called like a library; else import inside the function that needs it",
                    "",
                ),
                AGAIN,
            ],
        ),
        Reason::VersionMismatch => say(
            &[
                "a package is too old or too new for {name}: {message}",
                "the installed packages do not know {name}",
                "a package is too old or too new: {message}",
                "a package is too old or too new for another one",
            ],
            &[
                ("see which packages do not fit", "{python} -m pip check"),
                ("install the version that is asked for, then run it again", "{rerun}"),
            ],
        ),
        Reason::CompileFailed => say(
            &[
                "{name} could not be compiled where {who} ran",
                "something could not be compiled where {who} ran: {message}",
                "something could not be compiled where {who} ran",
            ],
            &[
                ("@local see whether a compiler is there", "which cc nvcc ninja"),
                (
                    "install a compiler and the CUDA toolkit (CUDA_HOME), or a wheel that was built for this torch and CUDA",
                    "",
                ),
                ("@cluster use an image with compilers (a -devel image), or build beforehand", ""),
                ("then run it again", "{rerun}"),
            ],
        ),
        Reason::InstallFailed => say(
            &[
                "{package} could not be installed",
                "packages could not be installed: {message}",
                "packages could not be installed",
            ],
            &[
                ("check its name and version, and whether this Python has it", "{python} --version"),
                ("install into an environment of the project, before the job", "python3 -m venv .venv"),
                ("then run it again", "{rerun}"),
            ],
        ),
        Reason::HangsAfterFailure => say(
            &[
                "{who} raised {exception} {silent} ago and has not ended: a thread or child of it still runs",
                "{who} has failed and does not end: a thread or child of it still runs",
            ],
            &[
                ("stop it; its settings are kept", "trainyard suspend {job}{flags}"),
                ("make threads daemons (daemon=True), and end workers in finally", ""),
                MEND,
            ],
        ),
        Reason::CpuTimeLimit => say(
            &["{who} used more processor time than it may (SIGXCPU)"],
            &[
                ("@local see the limits (ulimit -t)", "prlimit"),
                ("allow more in the shell that starts the control plane", ""),
            ],
        ),
        Reason::Signal => say(
            &["{who} was ended by {signal}", "{who} was ended by a signal"],
            &[
                ("look for what sends it: a scheduler, a timer of the script, a closed pipe", ""),
                ("run it again", "{rerun}"),
            ],
        ),
        _ => None,
    }
}

fn training(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::IndexOutOfRange => say(
            &[
                "an index, label or token is beyond its size at {place}: {message}",
                "an index, label or token is beyond its size: {message}",
                "an index, label or token is beyond the size of what it is looked up in",
            ],
            &[
                (
                    "compare the data's largest value with num_embeddings (the tokenizer's length) or the number of classes",
                    "",
                ),
                MEND,
                AGAIN,
            ],
        ),
        Reason::NanData => say(
            &[
                "the data of {who} holds values that are NaN or infinite ({place}): {message}",
                "the data of {who} holds values that are NaN or infinite",
            ],
            &[("look for empty cells and divisions by zero in the data, and fill or drop them", ""), MEND, AGAIN],
        ),
        Reason::EmptyDataset => say(
            &["the dataset of {who} has no samples ({place})", "the dataset of {who} has no samples"],
            &[("check the path and the filters; with many ranks each needs at least one batch", ""), MEND, AGAIN],
        ),
        Reason::GradientError => say(
            &["a gradient cannot be computed at {place}: {message}", "a gradient cannot be computed"],
            &[("let PyTorch say which operation: torch.autograd.set_detect_anomaly(True)", ""), MEND, AGAIN],
        ),
        Reason::UnusedParameters => say(
            &[
                "the loss does not depend on all parameters of the model, and DistributedDataParallel waits for the gradients of the others",
            ],
            &[
                ("use all parameters, or say so: DistributedDataParallel(model, find_unused_parameters=True)", ""),
                ("let PyTorch name them", "{rerun_detail}"),
            ],
        ),
        Reason::ProcessGroupMissing => say(
            &[
                "{who} uses torch.distributed before init_process_group ({place})",
                "{who} uses torch.distributed before init_process_group",
            ],
            &[
                ("call torch.distributed.init_process_group() first, and only where WORLD_SIZE is set", ""),
                ("start it by a runtime whose framework sets the variables (torch-distributed)", "{rerun_torch}"),
            ],
        ),
        Reason::DataLoaderTimeout => say(
            &[
                "a data loader of {who} waited {seconds} s for its workers",
                "a data loader of {who} waited too long for its workers",
            ],
            &[
                ("see with num_workers=0 whether reading a sample hangs, or allow more: DataLoader(timeout=...)", ""),
                ("where workers deadlock: fewer threads", "{rerun_threads}"),
            ],
        ),
        Reason::PeerFinished => say(
            &[
                "{peer} was done before {who}: the ranks have unequal numbers of steps",
                "another rank was done before {who}: the ranks have unequal numbers of steps",
            ],
            &[
                (
                    "give all ranks as many batches: DistributedSampler with drop_last=True, or DistributedDataParallel's join()",
                    "",
                ),
                ("compare how far the ranks came", "trainyard logs {job} --tail 5{flags}"),
            ],
        ),
        Reason::DeviceUnsupported => say(
            &[
                "the device of {who} does not support an operation: {message}",
                "the device of {who} does not support an operation (bf16, fp8, flash attention)",
            ],
            &[
                ("use fp16 or fp32 in place of bf16, and attn_implementation=\"sdpa\" in place of flash attention", ""),
                ("see what the GPUs are", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
                AGAIN,
            ],
        ),
        _ => None,
    }
}
