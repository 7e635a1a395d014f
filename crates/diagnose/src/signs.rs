//! Signs: lines that programs write when something is wrong, and the reason that each stands for.

mod habits;
mod machine;
mod peers;
mod program;

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
    for sign in [machine::SIGNS, program::SIGNS, habits::SIGNS, peers::SIGNS].into_iter().flatten() {
        if best.as_ref().is_some_and(|best| best.sign.weight >= sign.weight) {
            continue;
        }
        if let Some(captures) = sign.patterns.iter().find_map(|pattern| captures(pattern, line)) {
            best = Some(Found { sign, captures });
        }
    }
    best
}

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
            ("RuntimeError: mat1 and mat2 must have the same dtype, but got Double and Float", Reason::TypeMismatch),
            ("_pickle.UnpicklingError: Weights only load failed. This file", Reason::CheckpointRefused),
            ("RuntimeError: PytorchStreamReader failed reading zip archive", Reason::DamagedFile),
            ("RuntimeError: DataLoader timed out after 1 seconds", Reason::DataLoaderTimeout),
            ("An attempt has been made to start a new process before the", Reason::ProcessStart),
            ("_pickle.PicklingError: Can't pickle <function <lambda> at 0x7f>", Reason::NotPicklable),
            ("ValueError: Input X contains NaN.", Reason::NanData),
            (
                "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded \
                 (Caused by NameResolutionError(\"Failed to resolve 'huggingface.co'\"))",
                Reason::HubUnreachable,
            ),
            (
                "HTTPConnectionPool(host='db.example', port=80): Max retries exceeded with url: / (Caused by NameResolutionError())",
                Reason::NameNotResolved,
            ),
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
