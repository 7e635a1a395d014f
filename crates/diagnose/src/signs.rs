//! Signs: what programs write when something is wrong, and which reason it stands for.

use crate::pattern::captures;
use crate::reason::Reason;

/// How directly a sign says what went wrong. A process whose sign is of an earlier class failed before the others did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// It happened in this process.
    Own,
    /// This process waited for another one.
    Waited,
    /// Another process ended, and this one noticed.
    Consequence,
}

/// A sign: any of its patterns in a line.
pub(crate) struct Sign {
    pub reason: Reason,
    pub class: Class,
    /// How much it says: of two signs in a log the higher one counts.
    pub weight: u8,
    pub patterns: &'static [&'static str],
}

const fn own(reason: Reason, weight: u8, patterns: &'static [&'static str]) -> Sign {
    Sign { reason, class: Class::Own, weight, patterns }
}

const fn waited(reason: Reason, weight: u8, patterns: &'static [&'static str]) -> Sign {
    Sign { reason, class: Class::Waited, weight, patterns }
}

const fn consequence(reason: Reason, weight: u8, patterns: &'static [&'static str]) -> Sign {
    Sign { reason, class: Class::Consequence, weight, patterns }
}

/// A sign that fits a line, with what its gaps hold.
pub(crate) struct Found {
    pub sign: &'static Sign,
    pub captures: Vec<(&'static str, String)>,
}

/// The sign of a line that says most; of equal ones the first in the table.
pub(crate) fn in_line(line: &str) -> Option<Found> {
    let mut best: Option<Found> = None;
    for sign in SIGNS {
        if best.as_ref().is_some_and(|best| best.sign.weight >= sign.weight) {
            continue;
        }
        if let Some(captures) = sign.patterns.iter().find_map(|pattern| captures(pattern, line)) {
            best = Some(Found { sign, captures });
        }
    }
    best
}

const SIGNS: &[Sign] = &[
    // memory, disk and other limits
    own(
        Reason::CudaOutOfMemory,
        92,
        &[
            "CUDA out of memory. Tried to allocate {asked}. GPU",
            "CUDA out of memory",
            "CUDA error: out of memory",
            "HIP out of memory",
            "torch.OutOfMemoryError",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "cudaErrorMemoryAllocation",
            "RESOURCE_EXHAUSTED: Out of memory",
            "RESOURCE_EXHAUSTED: {_}allocating {asked} bytes",
        ],
    ),
    own(
        Reason::SharedMemoryTooSmall,
        90,
        &[
            "insufficient shared memory (shm)",
            "out of shared memory",
            "unable to write to file </torch_",
            "unable to allocate shared memory",
            "unable to open shared memory object",
            "/dev/shm{_}No space left on device",
        ],
    ),
    own(
        Reason::OutOfMemory,
        84,
        &[
            "^MemoryError: {message}",
            "^MemoryError",
            "numpy.core._exceptions._ArrayMemoryError: {message}",
            "_ArrayMemoryError: {message}",
            "DefaultCPUAllocator: {message}",
            "std::bad_alloc",
            "Cannot allocate memory",
            "Out of memory: Killed process",
            "oom-kill:",
            "^Killed process",
            "OutOfMemoryError: {message}",
            "java.lang.OutOfMemoryError",
            "JavaScript heap out of memory",
            "memory allocation of {asked} bytes failed",
        ],
    ),
    own(
        Reason::DiskFull,
        88,
        &[
            "No space left on device: '{path}'",
            "No space left on device",
            "Disk quota exceeded: '{path}'",
            "Disk quota exceeded",
            "ENOSPC",
            "PytorchStreamWriter failed writing file",
            "not enough free disk space",
        ],
    ),
    own(Reason::TooManyOpenFiles, 86, &["Too many open files", "EMFILE", "received 0 items of ancdata"]),
    own(
        Reason::TooManyProcesses,
        86,
        &[
            "can't start new thread",
            "pthread_create failed",
            "BlockingIOError: [Errno 11] Resource temporarily unavailable",
            "fork: retry: Resource temporarily unavailable",
            "fork: Resource temporarily unavailable",
            "OpenBLAS blas_thread_init: pthread_create",
        ],
    ),
    own(
        Reason::DataLoaderWorkerDied,
        70,
        &[
            "DataLoader worker (pid {_}) is killed by signal: {message}",
            "DataLoader worker (pid(s) {_}) exited unexpectedly",
            "DataLoader worker{_}exited unexpectedly",
            "A process in the process pool was terminated abruptly",
            "BrokenProcessPool",
        ],
    ),
    // GPUs
    own(
        Reason::GpuLost,
        95,
        &[
            "GPU has fallen off the bus",
            "uncorrectable ECC error{_}",
            "CUDA error: uncorrectable",
            "Xid ({message}",
            "NVRM: Xid{message}",
            "CUDA error: the launch timed out",
        ],
    ),
    own(
        Reason::DriverTooOld,
        91,
        &[
            "The NVIDIA driver on your system is too old (found version {version})",
            "driver on your system is too old",
            "CUDA driver version is insufficient for CUDA runtime version",
            "cudaErrorInsufficientDriver",
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            "forward compatibility was attempted on non supported HW",
            "Driver/library version mismatch",
        ],
    ),
    own(
        Reason::InvalidDevice,
        91,
        &[
            "invalid device ordinal",
            "Invalid device id",
            "CUDA_ERROR_INVALID_DEVICE",
            "device >= 0 && device < num_gpus",
            "device_id{_}out of range",
        ],
    ),
    own(
        Reason::CudaAssertion,
        91,
        &["device-side assert triggered", "Assertion `{message}` failed.", "cudaErrorAssert"],
    ),
    own(
        Reason::CudaMismatch,
        90,
        &[
            "no kernel image is available for execution on the device",
            "is not compatible with the current PyTorch installation",
            "The detected CUDA version ({message}",
            "mismatches the version that was used to compile PyTorch",
            "compiled with different CUDA versions",
            "PyTorch and torchvision were compiled with different CUDA",
            "the provided PTX was compiled with an unsupported toolchain",
            "Loaded runtime CuDNN library: {message}",
            "cuDNN version incompatibility: {message}",
        ],
    ),
    own(
        Reason::NoGpu,
        89,
        &[
            "No CUDA GPUs are available",
            "no CUDA-capable device is detected",
            "Torch not compiled with CUDA enabled",
            "Found no NVIDIA driver on your system",
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False",
            "ProcessGroupNCCL is only supported with GPUs, no GPUs found",
            "Error: CUDA is not available",
            "CUDA_ERROR_NO_DEVICE",
            "NVIDIA-SMI has failed because",
            "Unable to initialize backend 'cuda'",
            "Unknown backend: 'gpu' requested",
            "Distributed package doesn't have NCCL built in",
            "Distributed package doesn't have NCCL",
            "Torch not compiled with {message} enabled",
            "no HIP GPUs are available",
            "No GPU/TPU found",
        ],
    ),
    waited(
        Reason::NcclTimeout,
        82,
        &[
            "Watchdog caught collective operation timeout: WorkNCCL({_}OpType={operation},{_}ran for {seconds} milliseconds",
            "Watchdog caught collective operation timeout",
            "OpType={operation},{_}Timeout(ms)={seconds})",
            "collective operations have failed or timed out",
            "Some NCCL operations have failed or timed out",
        ],
    ),
    consequence(Reason::PeerLost, 60, &["ncclRemoteError", "remote process exited or there was a network error"]),
    own(
        Reason::NcclError,
        80,
        &[
            "Duplicate GPU detected : {message}",
            "ncclSystemError: {message}",
            "ncclInternalError: {message}",
            "ncclInvalidUsage: {message}",
            "ncclInvalidArgument: {message}",
            "ncclUnhandledCudaError: {message}",
            "NCCL error in: {message}",
            "NCCL error: {message}",
            "NCCL WARN {message}",
            "DistBackendError: NCCL{message}",
        ],
    ),
    own(
        Reason::CudaError,
        66,
        &[
            "CUDA error: {message}",
            "CUDA driver error: {message}",
            "cuDNN error: {message}",
            "CUBLAS error: {message}",
            "CUBLAS_STATUS_{message}",
            "CUDNN_STATUS_{message}",
            "cudaError{message}",
            "CUDA_ERROR_{message}",
            "CUDA failure {message}",
            "HIP error: {message}",
        ],
    ),
    own(
        Reason::DeviceMismatch,
        74,
        &["Expected all tensors to be on the same device", "Input type ({_}cuda{_}) and weight type"],
    ),
    // data and numbers
    own(
        Reason::RanksOutOfStep,
        85,
        &[
            "Detected mismatch between collectives on ranks. {message}",
            "Detected mismatch between collectives",
            "Mismatch between collective operation types",
            "op.preamble.length <= op.nbytes. {message}",
            "op.preamble.length <= op.nbytes",
            "enforce fail at{_}pair.cc{_}nbytes",
            "DDP expects same model across all ranks, {message}",
            "appears not to match sizes of the same param in process 0",
            "Expected to have finished reduction in the prior iteration",
            "Monitored barrier{_}ranks {message}",
        ],
    ),
    own(
        Reason::CheckpointMismatch,
        77,
        &[
            "size mismatch for {message}",
            "Missing key(s) in state_dict: {message}",
            "Unexpected key(s) in state_dict: {message}",
        ],
    ),
    own(
        Reason::CheckpointMismatch,
        76,
        &[
            "Error(s) in loading state_dict for",
            "PytorchStreamReader failed{message}",
            "invalid load key, {message}",
            "Error while deserializing header: {message}",
            "Weights only load failed",
            "^EOFError: Ran out of input",
            "loaded state dict contains a parameter group that doesn't match",
        ],
    ),
    own(
        Reason::ShapeMismatch,
        72,
        &[
            "mat1 and mat2 shapes cannot be multiplied ({_})",
            "The size of tensor a ({_}",
            "size mismatch, {_}",
            "Sizes of tensors must match {_}",
            "stack expects each tensor to be equal size, {_}",
            "shape '{_}' is invalid for input of size",
            "Given groups={_}",
            "Expected input batch_size {_}",
            "Using a target size ({_}",
            "operands could not be broadcast together with shapes {_}",
            "shapes {_} not aligned",
            "setting an array element with a sequence{_}",
            "Target size ({_}",
            "Found input variables with inconsistent numbers of samples: {_}",
            "expected sequence of length {_}",
            "Incompatible shapes for {_}",
            "dot_general requires contracting dimensions to have the same shape, {_}",
            "Dimension out of range ({_}",
            "matmul: Input operand 1 has a mismatch {_}",
            "The expanded size of the tensor ({_}",
        ],
    ),
    own(
        Reason::TypeMismatch,
        72,
        &[
            "expected scalar type {_}",
            "must have the same dtype, {_}",
            "must have the same dtype",
            "Expected tensor for argument {_} to have one of the following scalar types: {_}",
            "Found dtype {_}",
            "can't convert np.ndarray of type {_}",
            "result type {_} can't be cast",
            "not implemented for '{_}'",
        ],
    ),
    own(
        Reason::NanLoss,
        78,
        &[
            "returned nan values in its {_} output",
            "Loss is nan, stopping training",
            "loss is nan",
            "Loss is NaN",
            "loss became NaN",
            "NaN loss",
            "Loss is inf",
            "Input contains NaN",
            "FloatingPointError: {_}nan",
            "invalid value (nan) encountered in",
            "Current loss scale already at minimum",
            "probability tensor contains either `inf`, `nan`",
            "Expected parameter {_} but found invalid values",
        ],
    ),
    // libraries
    own(Reason::GlibcTooOld, 87, &["version `{version}' not found", "version '{version}' not found (required by"]),
    own(
        Reason::BinaryMismatch,
        83,
        &[
            "undefined symbol: {_}",
            "numpy.dtype size changed, {_}",
            "numpy.ndarray size changed, {_}",
            "A module that was compiled using NumPy 1.x cannot be run in {_}",
            "module compiled against ABI version {_}",
            "module compiled against API version {_}",
            "numpy.core.multiarray failed to import",
            "_ARRAY_API not found",
            "symbol lookup error: {_}",
            "operator torchvision::{_} does not exist",
            "Couldn't load custom C++ ops",
            "cannot import name '_C' from",
        ],
    ),
    own(
        Reason::SharedLibraryMissing,
        82,
        &[
            "error while loading shared libraries: {library}: cannot open",
            "^ImportError: {library}: cannot open shared object file",
            "^OSError: {library}: cannot open shared object file",
            "Could not load library {library}. Error",
            "Library {library} is not found",
            "{library}: cannot open shared object file",
        ],
    ),
    own(
        Reason::ExecFormat,
        81,
        &[
            "exec {command}: exec format error",
            "OSError: [Errno 8] Exec format error: '{command}'",
            "{command}: cannot execute binary file",
            "xec format error",
        ],
    ),
    // Python and its scripts
    own(
        Reason::PythonTooOld,
        71,
        &[
            "^SyntaxError: {message}f-string",
            "^SyntaxError: f-string: {message}",
            "requires a different Python: {message}",
            "requires Python {message}",
            "Python {_} or {_} is required{message}",
            "^TypeError: unsupported operand type(s) for |: {message}",
            "^ModuleNotFoundError: No module named '{message}tomllib'",
            "^ImportError: cannot import name 'Self' from 'typing'",
            "^TypeError: 'type' object is not subscriptable",
        ],
    ),
    own(Reason::SyntaxError, 70, &["^SyntaxError: {message}", "^IndentationError: {message}", "^TabError: {message}"]),
    own(
        Reason::MissingModule,
        75,
        &[
            "ModuleNotFoundError: No module named '{module}'",
            "No module named '{module}'",
            "^{python}: No module named {module}",
            "ImportError: No module named {module}",
            "requires the {module} library but it was not found",
            "you need to install {module}",
            "Missing optional dependency '{module}'",
        ],
    ),
    own(
        Reason::ImportFailed,
        68,
        &[
            "^ImportError: cannot import name '{name}' from '{module}'",
            "^ImportError: cannot import name '{name}' from partially initialized module '{module}'",
            "^AttributeError: module '{module}' has no attribute '{name}'",
        ],
    ),
    own(
        Reason::MissingVariable,
        69,
        &[
            "^KeyError: '{variable}'",
            "{variable}: unbound variable",
            "{variable}: parameter not set",
            "environment variable {variable} is not set",
            "environment variable {variable} not set",
        ],
    ),
    own(
        Reason::MasterAddressMissing,
        77,
        &[
            "environment variable {variable} expected, but not set",
            "Error initializing torch.distributed using env:// rendezvous: environment variable {variable} expected",
            "Default process group has not been initialized",
        ],
    ),
    own(Reason::ReadOnlyFileSystem, 79, &["Read-only file system: '{path}'", "Read-only file system"]),
    own(
        Reason::PermissionDenied,
        73,
        &[
            "PermissionError: [Errno 13] Permission denied: '{path}'",
            "PermissionError: [Errno 1] Operation not permitted: '{path}'",
            "can't open file '{path}': [Errno 13] Permission denied",
            "^{path}: Permission denied",
            ": {path}: Permission denied",
            "Permission denied: '{path}'",
            "cannot open {path}: Permission denied",
            "mkdir: cannot create directory '{path}': Permission denied",
        ],
    ),
    own(
        Reason::MissingFile,
        73,
        &[
            "can't open file '{path}': [Errno 2]",
            "FileNotFoundError: [Errno 2] No such file or directory: '{path}'",
            "FileNotFoundError: Couldn't find a dataset script at {path}",
            "FileNotFoundError: {_}'{path}'",
            "FileNotFoundError: {path} does not exist",
            "NotADirectoryError: [Errno 20] Not a directory: '{path}'",
            "IsADirectoryError: [Errno 21] Is a directory: '{path}'",
            "FileExistsError: [Errno 17] File exists: '{path}'",
            "cannot access '{path}': No such file or directory",
            "can't cd to {path}",
            "cd: {path}: No such file or directory",
            "cannot open {path}: No such file",
            ": {path}: No such file or directory",
            "Local file {path} does not exist",
            "No such file or directory: '{path}'",
            "No such file or directory",
        ],
    ),
    own(
        Reason::CommandNotFound,
        74,
        &[
            "{_}: line {_}: {command}: command not found",
            "{_}: {_}: {command}: not found",
            "{command}: command not found",
            "exec: {command}: not found",
            "/usr/bin/env: '{command}': No such file",
            "env: '{command}': No such file",
            "env: can't execute '{command}'",
            "executable file not found in $PATH: {command}",
        ],
    ),
    own(
        Reason::NotExecutable,
        74,
        &[
            "env: '{command}': Permission denied",
            "exec: {command}: Permission denied",
            "{_}: line {_}: {command}: Permission denied",
            "{_}: {_}: {command}: Permission denied",
            "{command}: Is a directory",
            "{command}: is a directory",
        ],
    ),
    own(
        Reason::BadArguments,
        67,
        &[
            ": error: {message}",
            "^argparse.ArgumentError: {message}",
            "^Error: No such option: {message}",
            "^Error: Invalid value for {message}",
            "^Error: Missing option {message}",
            "^Error: Missing argument {message}",
            "unrecognized arguments: {message}",
            "unrecognized option {message}",
            "FATAL Flags parsing error: {message}",
            "In 'config': Could not find '{message}'",
            "Key '{message}' is not in struct",
        ],
    ),
    own(
        Reason::BadConfiguration,
        71,
        &[
            "json.decoder.JSONDecodeError: {message}",
            "JSONDecodeError: {message}",
            "yaml.scanner.ScannerError: {message}",
            "yaml.parser.ParserError: {message}",
            "yaml.constructor.ConstructorError: {message}",
            "TOMLDecodeError: {message}",
            "configparser.{_}Error: {message}",
            "pydantic_core._pydantic_core.ValidationError: {message}",
            "pydantic.error_wrappers.ValidationError: {message}",
            "omegaconf.errors.{message}",
            "hydra.errors.{message}",
            "DeepSpeedConfigError: {message}",
            "Check batch related parameters. {message}",
        ],
    ),
    own(Reason::AssertionFailed, 50, &["^AssertionError: {message}", "^AssertionError"]),
    own(Reason::Interrupted, 50, &["^KeyboardInterrupt"]),
    // processes that talk to each other
    own(
        Reason::AddressInUse,
        85,
        &[
            "The server socket has failed to listen on any local network address. port: {port},",
            "bind: address already in use on port {port}",
            "EADDRINUSE{_}port: {port}",
            "[::]:{port} (errno: 98",
            "Address already in use{_}port {port}",
            "port {port} is already in use",
            "Address already in use",
            "address already in use",
            "EADDRINUSE",
        ],
    ),
    own(
        Reason::NameNotResolved,
        84,
        &[
            "Could not resolve hostname {host}: {_}",
            "Could not resolve host: {host}",
            "Failed to resolve '{host}'",
            "NameResolutionError{_}host='{host}'",
            "getaddrinfo failed{_}[{host}]",
            "The IPv4 network addresses of ({host}, {_}) cannot be retrieved",
            "The IPv6 network addresses of ({host}, {_}) cannot be retrieved",
            "DNS resolution failed for {host}:",
            "socket.gaierror",
            "Name or service not known",
            "Temporary failure in name resolution",
            "nodename nor servname provided",
            "No address associated with hostname",
        ],
    ),
    own(
        Reason::RanksOutOfStep,
        78,
        &["rank {_} in a group of size {message}", "Rank {_} reached{_}than rank{message}"],
    ),
    waited(
        Reason::GlooTimeout,
        72,
        &[
            "Timed out waiting {seconds} for {operation} operation to complete",
            "Application timeout caused pair closure",
            "Timed out waiting {seconds} for send",
            "gloo{_}imed out",
            "Rank {_} timed out waiting",
            "waiting for rank{_}timed out",
        ],
    ),
    waited(
        Reason::RendezvousTimeout,
        73,
        &[
            "RendezvousTimeoutError",
            "Timed out after {seconds} waiting for clients. {joined}/{wanted} clients joined",
            "waiting for clients. {joined}/{wanted} clients joined",
            "rendezvous{_}timed out",
            "Socket Timeout",
            "wait timeout after {seconds}, keys:",
            "Timeout waiting for key:",
            "DistStoreError: {_}imed out",
            "client socket has timed out after {seconds} while trying to connect to ({address})",
        ],
    ),
    waited(
        Reason::CoordinatorUnreachable,
        74,
        &[
            "DEADLINE_EXCEEDED: {_}oordination",
            "UNAVAILABLE: {_}ipv4:{address}: ",
            "Failed to connect to remote host{_}coordinat",
            "RegisterTask() {_}",
            "Barrier timed out. {_}PjRT_Client_Connect",
            "Failed to connect to tracker",
            "Failed to get the rank from tracker",
            "rabit{_}onnect{_}racker",
            "[tracker]{_}failed",
            "Failed to connect to coordinator {address}",
            "coordination service{_}unavailable",
            "Coordination service agent{_}",
        ],
    ),
    waited(
        Reason::RendezvousFailed,
        71,
        &[
            "The client socket has failed to connect to any network address of ({address})",
            "RendezvousConnectionError",
            "RendezvousError",
            "failed to connect to the C10d store",
        ],
    ),
    consequence(
        Reason::PeerLost,
        65,
        &[
            "Connection closed by peer",
            "Connection reset by peer",
            "Broken pipe",
            "Failed to recv, got 0 bytes",
            "Connection was likely closed",
            "remote peer{_}closed",
            "the remote server shutdown or crash",
            "RendezvousClosedError",
            "another task{_}died",
            "was preempted or died",
            "shut down{_}by another task",
            "Terminating process because the JAX distributed service detected fatal errors",
            "The following tasks are unhealthy",
            "NET/Socket{_}onnection closed",
            "socketProgress: Connection closed",
        ],
    ),
    waited(
        Reason::ConnectionRefused,
        64,
        &[
            "Failed to connect to {address} port {_}: Connection refused",
            "Connection refused [{address}]",
            "connect to {address}: Connection refused",
            "ConnectionRefusedError: [Errno 111] {_}('{address}')",
            "Connection refused",
        ],
    ),
    own(
        Reason::NetworkUnreachable,
        64,
        &[
            "No route to host [{address}]",
            "No route to host",
            "Network is unreachable",
            "Connection timed out",
            "TimeoutError: [Errno 110]",
            "ConnectTimeoutError",
            "ConnectTimeout",
            "ReadTimeout",
            "Network unreachable",
        ],
    ),
    own(
        Reason::MpiAsRoot,
        90,
        &["mpirun has detected an attempt to run as root", "prterun has detected an attempt to run as root"],
    ),
    own(
        Reason::MpiSlots,
        90,
        &["There are not enough slots available in the system to satisfy the {wanted}", "not enough slots available"],
    ),
    own(
        Reason::MpiSsh,
        90,
        &[
            "Host key verification failed",
            "REMOTE HOST IDENTIFICATION HAS CHANGED",
            "Permission denied (publickey{_}",
            "ssh: connect to host {host} port {_}: {message}",
            "ssh: Could not resolve hostname {host}: {message}",
            "Load key \"{_}\": {message}",
            "kex_exchange_identification: {message}",
            "command line arguments to launch agent: ssh{message}",
            "lost{_}agent to launch is not found: ssh",
        ],
    ),
    own(
        Reason::MpiDaemonLost,
        62,
        &[
            "ORTE was unable to reliably start one or more daemons",
            "ORTE has lost communication with a remote daemon",
            "PRTE has lost communication with a remote daemon",
            "An ORTE daemon has unexpectedly failed",
            "A daemon (pid {_}) died unexpectedly",
        ],
    ),
    consequence(
        Reason::MpiProcessFailed,
        61,
        &[
            "mpirun detected that one or more processes exited with non-zero status",
            "prterun detected that one or more processes exited",
            "mpirun noticed that process rank {_} with PID",
            "Primary job  terminated normally, but 1 process returned",
            "MPI_ABORT was invoked on rank",
            "^  Exit code:    {child_code}",
        ],
    ),
    // downloads and certificates
    own(
        Reason::CertificateNotValid,
        88,
        &[
            "certificate has expired{_}",
            "certificate is not yet valid{_}",
            "certificate verify failed: certificate has expired",
            "certificate verify failed: certificate is not yet valid",
            "x509: certificate has expired or is not yet valid: {_}",
        ],
    ),
    own(
        Reason::CertificateNotTrusted,
        86,
        &[
            "certificate verify failed: {_}",
            "certificate signed by unknown authority",
            "SSL certificate problem: {_}",
            "CERTIFICATE_VERIFY_FAILED",
            "hostname mismatch, certificate is not valid for",
        ],
    ),
    own(
        Reason::GatedRepository,
        89,
        &[
            "Access to model {url} is restricted",
            "Access to dataset {url} is restricted",
            "Cannot access gated repo for url {url}",
            "You are trying to access a gated repo",
            "GatedRepoError",
            "403 Client Error: Forbidden for url: {url}",
            "403 Client Error",
        ],
    ),
    own(
        Reason::HubUnauthorized,
        87,
        &[
            "401 Client Error: Unauthorized for url: {url}",
            "401 Client Error",
            "Invalid user token",
            "Invalid username or password",
            "Repository Not Found for url: {url}",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "NoCredentialsError",
            "Unable to locate credentials",
        ],
    ),
    own(
        Reason::HubNotFound,
        85,
        &[
            "404 Client Error: Not Found for url: {url}",
            "404 Client Error",
            "RepositoryNotFoundError",
            "RevisionNotFoundError",
            "EntryNotFoundError",
            "is not a local folder and is not a valid model identifier",
            "DatasetNotFoundError: {message}",
            "doesn't exist on the Hub or cannot be accessed",
            "NoSuchBucket",
            "NoSuchKey",
        ],
    ),
    own(Reason::RateLimited, 88, &["429 Client Error", "Too Many Requests", "rate limit exceeded"]),
    own(
        Reason::HubUnreachable,
        86,
        &[
            "LocalEntryNotFoundError",
            "OfflineModeIsEnabled",
            "We couldn't connect to '{url}' to load",
            "couldn't connect to '{url}'",
            "HTTPSConnectionPool(host='{host}'{_}Max retries exceeded",
            "MaxRetryError{_}host='{host}'",
            "ProxyError",
            "Unable to connect to proxy",
        ],
    ),
    own(
        Reason::HttpError,
        60,
        &["{message} Server Error", "HTTPError: {message}", "HfHubHTTPError: {message}", "urlopen error {message}"],
    ),
    // native crashes that say so themselves
    own(
        Reason::SegmentationFault,
        60,
        &[
            "Fatal Python error: Segmentation fault",
            "Segmentation fault (core dumped)",
            "Segmentation fault",
            "SIGSEGV",
        ],
    ),
    own(Reason::IllegalInstruction, 60, &["Fatal Python error: Illegal instruction", "Illegal instruction", "SIGILL"]),
    own(Reason::BusError, 60, &["Fatal Python error: Bus error", "Bus error (core dumped)", "Bus error", "SIGBUS"]),
    own(
        Reason::FloatingPointException,
        60,
        &["Fatal Python error: Floating point exception", "Floating point exception", "Floating-point exception"],
    ),
    own(
        Reason::Aborted,
        45,
        &[
            "terminate called after throwing an instance of '{message}'",
            "Fatal Python error: Aborted",
            "*** stack smashing detected",
            "double free or corruption",
            "free(): invalid pointer",
            "malloc(): {message}",
            "corrupted size vs. prev_size",
            "Aborted (core dumped)",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(line: &str) -> Option<Reason> {
        in_line(line).map(|found| found.sign.reason)
    }

    #[test]
    fn the_sign_that_says_most_counts() {
        let cases = [
            ("RuntimeError: CUDA error: out of memory", Reason::CudaOutOfMemory),
            ("RuntimeError: CUDA error: invalid device ordinal", Reason::InvalidDevice),
            ("RuntimeError: CUDA error: an illegal memory access was encountered", Reason::CudaError),
            ("sh: 1: nosuch: not found", Reason::CommandNotFound),
            ("bash: line 1: nosuch: command not found", Reason::CommandNotFound),
            ("train.py: error: unrecognized arguments: --lr2 3", Reason::BadArguments),
            (
                "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
                Reason::SharedLibraryMissing,
            ),
            ("OSError: [Errno 28] No space left on device: '/x'", Reason::DiskFull),
            ("socket.gaierror: [Errno -2] Name or service not known", Reason::NameNotResolved),
        ];
        for (line, expected) in cases {
            assert_eq!(reason(line), Some(expected), "{line}");
        }
        assert_eq!(reason("epoch 3 loss 0.2"), None);
    }

    #[test]
    fn gaps_are_kept() {
        let found = in_line("ModuleNotFoundError: No module named 'einops'").expect("a sign");
        assert_eq!(found.captures, [("module", "einops".to_owned())]);
    }
}
