//! Advice about processes that end by themselves or by a signal: exceptions, exit codes, memory and disk, libraries, data.

use super::{Advice, advice as say};
use crate::reason::Reason;

const MEND: (&str, &str) = ("correct {file} at line {line}, then run it again", "{rerun}");
const AGAIN: (&str, &str) = ("correct it, then run it again", "{rerun}");

pub(super) fn advice(reason: Reason) -> Option<Advice> {
    exceptions(reason).or_else(|| limits(reason))
}

fn exceptions(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::Exception => say(
            &[
                "{who} raised {exception} at {place}: {message}",
                "{who} raised {exception} at {place}",
                "{who} raised {exception}: {message}",
                "{who} raised {exception}",
                "{who} ended by an exception that nothing caught",
            ],
            &[MEND, AGAIN],
        ),
        Reason::AssertionFailed => say(
            &[
                "an assert did not hold at {place}: {message}",
                "an assert did not hold at {place}",
                "an assert did not hold",
            ],
            &[MEND, AGAIN],
        ),
        Reason::SyntaxError => say(
            &[
                "Python cannot read {file}, line {line}: {message}",
                "Python cannot read the script: {message}",
                "Python cannot read the script",
            ],
            &[
                ("see the place", "python3 -m py_compile {file}"),
                ("where it is newer syntax (match, type, except*): see which Python runs it", "{python} --version"),
                MEND,
                AGAIN,
            ],
        ),
        Reason::PythonTooOld => say(
            &["the script needs a newer Python than the one that ran it: {message}", "the script needs a newer Python"],
            &[
                ("see which Python runs it", "{python} --version"),
                ("@local run it with the PATH of an environment that has a newer Python", ""),
                ("@cluster use an image with a newer Python (trainyard run --image)", ""),
            ],
        ),
        Reason::MissingModule => say(
            &[
                "{local_why}",
                "module {module} is not installed for {python}",
                "module {module} is not installed where {who} ran",
                "a module that the script imports is not installed",
            ],
            &[
                ("{local_fix}", "{rerun_path}"),
                ("{local_fix}", ""),
                ("install it into the environment that runs the job", "{install} {package}"),
                (
                    "@local install it into an environment of the project (the system's Python refuses pip)",
                    "{venv}{package}",
                ),
                (
                    "@cluster use an image that has {package} (trainyard run --image), or send the module along (--workdir)",
                    "",
                ),
                ("then run it again", "{rerun}"),
            ],
        ),
        Reason::ImportFailed => say(
            &[
                "{name} cannot be imported from {module}: the installed version does not have it",
                "a name cannot be imported",
            ],
            &[
                ("see which version is installed", "{python} -m pip show {package}"),
                ("@local install another version", "{install} --upgrade {package}"),
                ("a file of your own called like the package hides it: rename it", ""),
            ],
        ),
        Reason::MissingFile => say(
            &["{path} does not exist where {who} ran", "a file does not exist where {who} ran"],
            &[
                (
                    "@local relative paths begin at {directory}; give an absolute path, or run it from there",
                    "ls -l {directory}",
                ),
                ("@local see what is there", "ls -ld {quoted_path}"),
                ("@cluster pods see what is in the image, sent with --workdir, or mounted by the runtime", ""),
                ("then run it again", "{rerun}"),
            ],
        ),
        Reason::PermissionDenied => say(
            &["{who} may not use {path}: permission denied", "{who} may not do what it tried: permission denied"],
            &[
                ("@local see who may", "ls -ld {quoted_path}"),
                (
                    "@cluster the user of the image may not: choose a path it may write (/tmp, a volume), or set fsGroup in the runtime",
                    "",
                ),
                ("then run it again", "{rerun}"),
            ],
        ),
        Reason::ReadOnlyFileSystem => say(
            &["{path} is on a read-only file system", "the process wrote to a read-only file system"],
            &[
                ("write to /tmp or to a volume; code that trainyard sent is mounted read-only", ""),
                ("@local see how it is mounted", "findmnt -T {quoted_path}"),
            ],
        ),
        Reason::BadArguments => say(
            &["the program refused its arguments: {message}", "the program refused its arguments"],
            &[("see which arguments it takes", "{script_help}"), ("run it again with other arguments", "{rerun}")],
        ),
        Reason::BadConfiguration => say(
            &["the configuration is not valid: {message}", "the configuration is not valid"],
            &[MEND, ("correct the file, then run it again", "{rerun}")],
        ),
        Reason::MissingVariable => say(
            &["{variable} is not set where {who} ran", "a variable that the script needs is not set"],
            &[("@local run it again with the variable", "{rerun_env}"), ("set it with --env {variable}=VALUE", "")],
        ),
        Reason::Interrupted => {
            say(&["{who} was interrupted (SIGINT, as by Ctrl-C)", "it was interrupted"], &[("run it again", "{rerun}")])
        }
        Reason::CommandNotFound => say(
            &["the command {command} was not found", "a command was not found (exit code 127)"],
            &[
                ("@local see whether it is on the PATH", "which {command}"),
                (
                    "@local pods run with the PATH of the shell in which `trainyard run` was typed: activate the environment, run it again",
                    "{rerun}",
                ),
                ("@cluster use an image that has it, or give its full path", ""),
            ],
        ),
        Reason::NotExecutable => say(
            &["{command} cannot be executed", "the command cannot be executed (exit code 126)"],
            &[
                ("@local let it be executed", "chmod +x {command}"),
                ("check that it is there, and a program and no folder", ""),
            ],
        ),
        Reason::ExecFormat => say(
            &[
                "{command} is no program for this processor, or a script without #!",
                "the program was built for another processor, or is a script without #!",
            ],
            &[
                ("@local see what it is", "file {command}"),
                ("@cluster use an image for the nodes' processor", "{kubectl} get nodes -L kubernetes.io/arch"),
            ],
        ),
        Reason::ExitCode => say(
            &[
                "{who} ended with exit code {code}; its last line: {last}",
                "{who} ended with exit code {code}",
                "{who} ended with an error",
            ],
            &[
                (
                    "its Job has removed its pod, and so its log: restartPolicy Never of the launcher keeps both ({removed} is the default)",
                    "",
                ),
                ("correct what its last lines say, then run it again", "{rerun}"),
            ],
        ),
        _ => None,
    }
}

fn limits(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::SegmentationFault => say(
            &["{who} crashed in a native library (SIGSEGV) at {place}", "{who} crashed in a native library (SIGSEGV)"],
            &[
                ("let Python print where it crashes", "{rerun_faulthandler}"),
                (
                    "packages that do not fit each other are the common cause: look at their versions",
                    "{python} -m pip check",
                ),
            ],
        ),
        Reason::Aborted => say(
            &["a native library gave up in {who} (SIGABRT): {message}", "a native library gave up in {who} (SIGABRT)"],
            &[
                ("let Python print where it stops", "{rerun_faulthandler}"),
                ("where its work was done: end the script with torch.distributed.destroy_process_group()", ""),
            ],
        ),
        Reason::BusError => say(
            &["{who} reached memory that could not be provided (SIGBUS): shared memory or a mapped file"],
            &[
                ("@local see how full shared memory is", "df -h /dev/shm"),
                (
                    "@cluster give the runtime's pods a larger /dev/shm (emptyDir with medium Memory), or use num_workers=0",
                    "",
                ),
            ],
        ),
        Reason::IllegalInstruction => say(
            &[
                "{who} ran an instruction that this processor does not have (SIGILL): a library was built for a newer one",
            ],
            &[
                ("@local see what the processor has", "lscpu"),
                ("install a build of the library for this processor", ""),
            ],
        ),
        Reason::FloatingPointException => say(
            &["a native library divided by zero in {who} (SIGFPE)"],
            &[("let Python print where", "{rerun_faulthandler}")],
        ),
        Reason::Killed => say(
            &["{who} was killed (SIGKILL); the kernel does so when memory runs out, and nobody left a record"],
            &[
                ("@local see whether the kernel did it", "dmesg -T | grep -i -E 'out of memory|oom-kill' | tail"),
                ("@cluster see what memory the nodes have left", "{kubectl} top nodes"),
                ("ask for more memory, or use less (smaller batches, fewer loader workers)", "{rerun_memory}"),
            ],
        ),
        Reason::Terminated => say(
            &["{who} was asked to end (SIGTERM), and no other process failed before"],
            &[("run it again", "{rerun}")],
        ),
        Reason::OutOfMemory => say(
            &[
                "{who} used more memory than its limit of {memory_limit}, and was killed",
                "{who} ran out of memory: {message}",
                "{who} ran out of memory",
            ],
            &[
                ("ask for more memory", "{rerun_memory}"),
                ("@cluster ask for more memory (resourcesPerNode.limits.memory)", ""),
                ("use less: smaller batches, fewer data-loader workers, data that is not all loaded at once", ""),
                ("@local see what is free", "free -h"),
            ],
        ),
        Reason::SharedMemoryTooSmall => say(
            &["/dev/shm is too small for what the data loader's workers pass on in {who}"],
            &[
                ("@local see how full it is", "df -h /dev/shm"),
                (
                    "@cluster give the runtime's pods a larger /dev/shm: a volume emptyDir {medium: Memory} mounted there",
                    "",
                ),
                ("or load data in the process itself: num_workers=0", ""),
            ],
        ),
        Reason::DataLoaderWorkerDied => say(
            &["a data-loader worker of {who} ended: {message}", "a data-loader worker of {who} ended"],
            &[
                ("run with num_workers=0, which shows the worker's own error", ""),
                (
                    "@local see whether the kernel killed it for memory",
                    "dmesg -T | grep -i -E 'out of memory|oom-kill' | tail",
                ),
                ("ask for more memory", "{rerun_memory}"),
            ],
        ),
        Reason::DiskFull => say(
            &["no space is left to write {path}", "no space is left on a disk that {who} writes to"],
            &[
                ("@local see which disk is full", "df -h {directory} /tmp"),
                ("@cluster write to a larger volume, or ask for more ephemeral storage", "{kubectl} get pvc"),
                ("delete old checkpoints, or write fewer of them", ""),
            ],
        ),
        Reason::TooManyOpenFiles => say(
            &["{who} has as many open files as it may"],
            &[
                ("@local allow more in the shell that starts the control plane (ulimit -n 65536), and restart it", ""),
                ("share tensors by file system: torch.multiprocessing.set_sharing_strategy('file_system')", ""),
            ],
        ),
        Reason::TooManyProcesses => say(
            &["{who} could not start a further process or thread"],
            &[("use fewer threads and loader workers", "{rerun_threads}"), ("@local see the limits", "prlimit")],
        ),
        Reason::ShapeMismatch => say(
            &[
                "shapes do not fit at {place}: {message}",
                "shapes do not fit: {message}",
                "shapes of tensors do not fit",
            ],
            &[MEND, AGAIN],
        ),
        Reason::TypeMismatch => say(
            &["types do not fit at {place}: {message}", "types do not fit: {message}", "types of tensors do not fit"],
            &[MEND, AGAIN],
        ),
        Reason::CheckpointMismatch => say(
            &["a checkpoint does not fit the model: {message}", "a checkpoint does not fit the model"],
            &[
                ("load one that was written by this model, or start without it", ""),
                ("names that begin with module. are DistributedDataParallel's: save model.module.state_dict()", ""),
                MEND,
            ],
        ),
        Reason::NanLoss => say(
            &["the loss of {who} is no number any more: {last}", "the loss is no number any more (NaN or infinite)"],
            &[
                ("lower the learning rate, clip gradients, and look at the data of the last steps", ""),
                ("let PyTorch say where it begins: torch.autograd.set_detect_anomaly(True)", ""),
                ("stop it meanwhile", "trainyard suspend {job}{flags}"),
            ],
        ),
        Reason::LossFlat => say(
            &["the loss has been {loss} for the last {steps} reports", "the loss has not changed for a long time"],
            &[
                (
                    "check that the optimizer has the model's parameters, that gradients are not zero, and the learning rate",
                    "",
                ),
                ("see how it went", "trainyard metrics {job}{flags}"),
            ],
        ),
        Reason::SharedLibraryMissing => say(
            &["the shared library {library} is not there", "a shared library is not there"],
            &[
                ("@local see what the system has", "ldconfig -p | grep {library_stem}"),
                ("install the package that brings it, or reinstall the Python package for this system's CUDA", ""),
                ("@cluster use an image that has it", ""),
            ],
        ),
        Reason::GlibcTooOld => say(
            &[
                "a library needs {version}, which is newer than the system's C library",
                "a library needs a newer C library",
            ],
            &[
                ("see which the system has", "ldd --version"),
                ("install an older build of the package, or use a newer system or image", ""),
            ],
        ),
        Reason::BinaryMismatch => say(
            &["compiled packages do not fit each other: {message}", "compiled packages do not fit each other"],
            &[
                ("see which do not fit", "{python} -m pip check"),
                (
                    "reinstall the packages together, so that their versions fit (mostly torch with its extensions, or numpy<2)",
                    "",
                ),
            ],
        ),
        Reason::Unknown => say(
            &["the job failed, and neither pods, events nor logs say why"],
            &[("run it again and follow it", "{rerun}"), ("see its events", "{kubectl} get events")],
        ),
        _ => None,
    }
}
