//! Functions and operators of CEL as Kubernetes has them, with their types (cel-go's standard library and its extensions,
//! `k8s.io/apiserver/pkg/cel/library`).

use super::types::Ty;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A function with types of its arguments and result.
#[derive(Debug)]
pub(super) struct Signature {
    pub name: &'static str,
    /// Called on its first argument.
    pub method: bool,
    pub params: Vec<Ty<'static>>,
    pub result: Ty<'static>,
}

/// How many variables a signature may have.
pub(super) const VARIABLES: u32 = 3;

/// By name: arguments and result; a dot ends the receiver of a method. `A`, `B` and `V` stand for any type, `ORDERED` for each of
/// those that have an order, `SUMMABLE` for each of those that can be added up.
const TABLE: &str = "
_?_:_: bool A A -> A
_&&_: bool bool -> bool
_||_: bool bool -> bool
!_: bool -> bool
@not_strictly_false: bool -> bool
_==_: A A -> bool
_!=_: A A -> bool
_+_: bytes bytes -> bytes; double double -> double; duration duration -> duration; duration timestamp -> timestamp; timestamp duration -> timestamp; int int -> int; list(A) list(A) -> list(A); string string -> string; uint uint -> uint
_-_: double double -> double; duration duration -> duration; int int -> int; timestamp duration -> timestamp; timestamp timestamp -> duration; uint uint -> uint
_*_: double double -> double; int int -> int; uint uint -> uint
_/_: double double -> double; int int -> int; uint uint -> uint
_%_: int int -> int; uint uint -> uint
-_: double -> double; int -> int
_<_: ORDERED ORDERED -> bool; int double -> bool; int uint -> bool; uint double -> bool; uint int -> bool; double int -> bool; double uint -> bool
_<=_: ORDERED ORDERED -> bool; int double -> bool; int uint -> bool; uint double -> bool; uint int -> bool; double int -> bool; double uint -> bool
_>_: ORDERED ORDERED -> bool; int double -> bool; int uint -> bool; uint double -> bool; uint int -> bool; double int -> bool; double uint -> bool
_>=_: ORDERED ORDERED -> bool; int double -> bool; int uint -> bool; uint double -> bool; uint int -> bool; double int -> bool; double uint -> bool
_[_]: list(A) int -> A; map(A,B) A -> B; optional(list(V)) int -> optional(V); optional(map(A,V)) A -> optional(V)
_[?_]: list(V) int -> optional(V); optional(list(V)) int -> optional(V); map(A,V) A -> optional(V); optional(map(A,V)) A -> optional(V)
@in: A list(A) -> bool; A map(A,B) -> bool
size: bytes -> int; bytes . -> int; list(A) -> int; list(A) . -> int; map(A,B) -> int; map(A,B) . -> int; string -> int; string . -> int
type: A -> type(A)
bool: bool -> bool; string -> bool
bytes: bytes -> bytes; string -> bytes
double: double -> double; int -> double; string -> double; uint -> double
duration: duration -> duration; int -> duration; string -> duration
dyn: A -> dyn
int: int -> int; double -> int; duration -> int; string -> int; timestamp -> int; uint -> int
string: string -> string; bool -> string; bytes -> string; double -> string; duration -> string; int -> string; timestamp -> string; uint -> string; ip -> string; cidr -> string
timestamp: timestamp -> timestamp; int -> timestamp; string -> timestamp
uint: uint -> uint; double -> uint; int -> uint; string -> uint
contains: string . string -> bool
endsWith: string . string -> bool
startsWith: string . string -> bool
matches: string string -> bool; string . string -> bool
getFullYear: timestamp . -> int; timestamp . string -> int
getMonth: timestamp . -> int; timestamp . string -> int
getDayOfYear: timestamp . -> int; timestamp . string -> int
getDayOfMonth: timestamp . -> int; timestamp . string -> int
getDate: timestamp . -> int; timestamp . string -> int
getDayOfWeek: timestamp . -> int; timestamp . string -> int
getHours: timestamp . -> int; timestamp . string -> int; duration . -> int
getMinutes: timestamp . -> int; timestamp . string -> int; duration . -> int
getSeconds: timestamp . -> int; timestamp . string -> int; duration . -> int
getMilliseconds: timestamp . -> int; timestamp . string -> int; duration . -> int
charAt: string . int -> string
indexOf: string . string -> int; string . string int -> int; list(A) . A -> int
lastIndexOf: string . string -> int; string . string int -> int; list(A) . A -> int
lowerAscii: string . -> string
upperAscii: string . -> string
trim: string . -> string
replace: string . string string -> string; string . string string int -> string
split: string . string -> list(string); string . string int -> list(string)
substring: string . int -> string; string . int int -> string
format: string . list(dyn) -> string
strings.quote: string -> string
join: list(string) . -> string; list(string) . string -> string
find: string . string -> string
findAll: string . string -> list(string); string . string int -> list(string)
isSorted: list(ORDERED) . -> bool
sum: list(SUMMABLE) . -> SUMMABLE
min: list(ORDERED) . -> ORDERED
max: list(ORDERED) . -> ORDERED
slice: list(A) . int int -> list(A)
flatten: list(list(A)) . -> list(A); list(dyn) . int -> list(dyn)
sort: list(ORDERED) . -> list(ORDERED)
@sortByAssociatedKeys: list(A) . list(ORDERED) -> list(A)
lists.range: int -> list(int)
reverse: list(A) . -> list(A)
distinct: list(A) . -> list(A)
first: list(V) . -> optional(V)
last: list(V) . -> optional(V)
sets.contains: list(A) list(A) -> bool
sets.equivalent: list(A) list(A) -> bool
sets.intersects: list(A) list(A) -> bool
cel.@mapInsert: map(A,B) A B -> map(A,B); map(A,B) map(A,B) -> map(A,B)
optional.of: V -> optional(V)
optional.ofNonZeroValue: V -> optional(V)
optional.none: -> optional(V)
optional.unwrap: list(optional(V)) -> list(V)
unwrapOpt: list(optional(V)) . -> list(V)
value: optional(V) . -> V
hasValue: optional(V) . -> bool
or: optional(V) . optional(V) -> optional(V)
orValue: optional(V) . V -> V
url: string -> url
isURL: string -> bool
getScheme: url . -> string
getHost: url . -> string
getHostname: url . -> string
getPort: url . -> string
getEscapedPath: url . -> string
getQuery: url . -> map(string,list(string))
quantity: string -> quantity
isQuantity: string -> bool
sign: quantity -> int
isGreaterThan: quantity . quantity -> bool; semver . semver -> bool
isLessThan: quantity . quantity -> bool; semver . semver -> bool
compareTo: quantity . quantity -> int; semver . semver -> int
asApproximateFloat: quantity . -> double
asInteger: quantity . -> int
isInteger: quantity . -> bool
add: quantity . quantity -> quantity; quantity . int -> quantity
sub: quantity . quantity -> quantity; quantity . int -> quantity
ip: string -> ip; cidr . -> ip
ip.isCanonical: string -> bool
isIP: string -> bool
family: ip . -> int
isUnspecified: ip . -> bool
isLoopback: ip . -> bool
isLinkLocalMulticast: ip . -> bool
isLinkLocalUnicast: ip . -> bool
isGlobalUnicast: ip . -> bool
cidr: string -> cidr
isCIDR: string -> bool
containsIP: cidr . string -> bool; cidr . ip -> bool
containsCIDR: cidr . string -> bool; cidr . cidr -> bool
prefixLength: cidr . -> int
masked: cidr . -> cidr
jsonpatch.escapeKey: string -> string
format.named: string -> optional(format)
format.dns1123Label: -> format
format.dns1123Subdomain: -> format
format.dns1035Label: -> format
format.qualifiedName: -> format
format.dns1123LabelPrefix: -> format
format.dns1123SubdomainPrefix: -> format
format.dns1035LabelPrefix: -> format
format.labelValue: -> format
format.uri: -> format
format.uuid: -> format
format.byte: -> format
format.date: -> format
format.datetime: -> format
validate: format . string -> optional(list(string))
semver: string -> semver; string bool -> semver
isSemver: string -> bool; string bool -> bool
major: semver . -> int
minor: semver . -> int
patch: semver . -> int
path: authorizer . string -> pathcheck
group: authorizer . string -> groupcheck
serviceAccount: authorizer . string string -> authorizer
resource: groupcheck . string -> resourcecheck
subresource: resourcecheck . string -> resourcecheck
namespace: resourcecheck . string -> resourcecheck
name: resourcecheck . string -> resourcecheck
fieldSelector: resourcecheck . string -> resourcecheck
labelSelector: resourcecheck . string -> resourcecheck
check: pathcheck . string -> decision; resourcecheck . string -> decision
errored: decision . -> bool
error: decision . -> string
allowed: decision . -> bool
reason: decision . -> string
";

const ORDERED: [&str; 8] = ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];
const SUMMABLE: [&str; 4] = ["int", "uint", "double", "duration"];

static SIGNATURES: LazyLock<BTreeMap<&'static str, Vec<Signature>>> = LazyLock::new(|| {
    let mut out: BTreeMap<&'static str, Vec<Signature>> = BTreeMap::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let Some((name, overloads)) = line.split_once(": ") else { continue };
        let overloads = overloads.split("; ").flat_map(|overload| {
            let each = |word: &'static str, types: &[&str]| -> Vec<String> {
                types.iter().map(|ty| overload.replace(word, ty)).collect()
            };
            if overload.contains("ORDERED") {
                each("ORDERED", &ORDERED)
            } else if overload.contains("SUMMABLE") {
                each("SUMMABLE", &SUMMABLE)
            } else {
                vec![overload.to_owned()]
            }
        });
        out.insert(name, overloads.map(|overload| signature(name, &overload)).collect());
    }
    out
});

fn signature(name: &'static str, text: &str) -> Signature {
    let (args, result) = text.split_once("-> ").unwrap_or((text, ""));
    let words: Vec<&str> = args.split_whitespace().collect();
    Signature {
        name,
        method: words.contains(&"."),
        params: words.into_iter().filter(|word| *word != ".").map(ty).collect(),
        result: ty(result),
    }
}

/// A type as signatures name it; anything where the name is none.
pub(super) fn ty(text: &str) -> Ty<'static> {
    if let Some((outer, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let inside = |text: &str| Box::new(ty(text));
        return match (outer, inner.split_once(',')) {
            ("map", Some((key, value))) => Ty::Map(inside(key), inside(value)),
            ("list", _) => Ty::List(inside(inner)),
            ("optional", _) => Ty::Optional(inside(inner)),
            ("type", _) => Ty::Type(inside(inner)),
            _ => Ty::Dyn,
        };
    }
    match text {
        "bool" => Ty::Bool,
        "int" => Ty::Int,
        "uint" => Ty::Uint,
        "double" => Ty::Double,
        "string" => Ty::String,
        "bytes" => Ty::Bytes,
        "timestamp" => Ty::Timestamp,
        "duration" => Ty::Duration,
        "A" => Ty::Var(0),
        "B" => Ty::Var(1),
        "V" => Ty::Var(2),
        "url" => Ty::Other("kubernetes.URL"),
        "quantity" => Ty::Other("kubernetes.Quantity"),
        "ip" => Ty::Other("net.IP"),
        "cidr" => Ty::Other("net.CIDR"),
        "semver" => Ty::Other("kubernetes.Semver"),
        "format" => Ty::Other("kubernetes.NamedFormat"),
        "authorizer" => Ty::Other("kubernetes.authorization.Authorizer"),
        "pathcheck" => Ty::Other("kubernetes.authorization.PathCheck"),
        "groupcheck" => Ty::Other("kubernetes.authorization.GroupCheck"),
        "resourcecheck" => Ty::Other("kubernetes.authorization.ResourceCheck"),
        "decision" => Ty::Other("kubernetes.authorization.Decision"),
        _ => Ty::Dyn,
    }
}

/// The signatures of a function; `None`: there is none of that name.
pub(super) fn of(name: &str) -> Option<&'static [Signature]> {
    SIGNATURES.get(name).map(Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read() {
        for (name, overloads) in SIGNATURES.iter() {
            for signature in overloads {
                let unknown = |ty: &Ty<'_>| *ty == Ty::Dyn;
                let may_be_open = matches!(*name, "dyn" | "format" | "flatten");
                assert!(may_be_open || !signature.params.iter().chain([&signature.result]).any(unknown), "{name}");
                assert!(!signature.method || !signature.params.is_empty(), "{name}");
            }
        }
        assert_eq!(SIGNATURES.len(), TABLE.lines().filter(|line| !line.is_empty()).count());
    }
}
