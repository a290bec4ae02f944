//! What functions there are and of which types: one table, for the checker.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::types::Type;

/// `name(parameters) result`; a method has its target first, before a dot. `A` and `B` stand for any type.
const TABLE: &str = "
!_(bool) bool
-_(int) int
-_(double) double
_&&_(bool,bool) bool
_||_(bool,bool) bool
_?_:_(bool,A,A) A
_==_(A,A) bool
_!=_(A,A) bool
@in(A,list<A>) bool
@in(A,map<A,B>) bool
_+_(int,int) int
_+_(uint,uint) uint
_+_(double,double) double
_+_(string,string) string
_+_(bytes,bytes) bytes
_+_(list<A>,list<A>) list<A>
_+_(duration,duration) duration
_+_(timestamp,duration) timestamp
_+_(duration,timestamp) timestamp
_-_(int,int) int
_-_(uint,uint) uint
_-_(double,double) double
_-_(duration,duration) duration
_-_(timestamp,duration) timestamp
_-_(timestamp,timestamp) duration
_*_(int,int) int
_*_(uint,uint) uint
_*_(double,double) double
_/_(int,int) int
_/_(uint,uint) uint
_/_(double,double) double
_%_(int,int) int
_%_(uint,uint) uint
_[_](list<A>,int) A
_[_](map<A,B>,A) B
_[_](optional<list<A>>,int) optional<A>
_[_](optional<map<A,B>>,A) optional<B>
_[?_](list<A>,int) optional<A>
_[?_](map<A,B>,A) optional<B>
_[?_](optional<list<A>>,int) optional<A>
_[?_](optional<map<A,B>>,A) optional<B>
size(string) int
size(bytes) int
size(list<A>) int
size(map<A,B>) int
string.size() int
bytes.size() int
list<A>.size() int
map<A,B>.size() int
string.contains(string) bool
string.startsWith(string) bool
string.endsWith(string) bool
string.matches(string) bool
matches(string,string) bool
bool(bool) bool
bool(string) bool
int(int) int
int(uint) int
int(double) int
int(string) int
int(timestamp) int
int(duration) int
uint(uint) uint
uint(int) uint
uint(double) uint
uint(string) uint
double(double) double
double(int) double
double(uint) double
double(string) double
string(string) string
string(bool) string
string(int) string
string(uint) string
string(double) string
string(bytes) string
string(timestamp) string
string(duration) string
string(kubernetes.IP) string
string(kubernetes.CIDR) string
bytes(bytes) bytes
bytes(string) bytes
duration(duration) duration
duration(string) duration
timestamp(timestamp) timestamp
timestamp(string) timestamp
timestamp(int) timestamp
type(A) type
dyn(A) dyn
timestamp.getFullYear() int
timestamp.getFullYear(string) int
timestamp.getMonth() int
timestamp.getMonth(string) int
timestamp.getDate() int
timestamp.getDate(string) int
timestamp.getDayOfMonth() int
timestamp.getDayOfMonth(string) int
timestamp.getDayOfWeek() int
timestamp.getDayOfWeek(string) int
timestamp.getDayOfYear() int
timestamp.getDayOfYear(string) int
timestamp.getHours() int
timestamp.getHours(string) int
timestamp.getMinutes() int
timestamp.getMinutes(string) int
timestamp.getSeconds() int
timestamp.getSeconds(string) int
timestamp.getMilliseconds() int
timestamp.getMilliseconds(string) int
duration.getHours() int
duration.getMinutes() int
duration.getSeconds() int
duration.getMilliseconds() int
optional.of(A) optional<A>
optional.ofNonZeroValue(A) optional<A>
optional.none() optional<A>
optional.unwrap(list<optional<A>>) list<A>
list<optional<A>>.unwrapOpt() list<A>
optional<A>.hasValue() bool
optional<A>.value() A
optional<A>.or(optional<A>) optional<A>
optional<A>.orValue(A) A
string.charAt(int) string
string.indexOf(string) int
string.indexOf(string,int) int
string.lastIndexOf(string) int
string.lastIndexOf(string,int) int
string.lowerAscii() string
string.upperAscii() string
string.replace(string,string) string
string.replace(string,string,int) string
string.split(string) list<string>
string.split(string,int) list<string>
string.substring(int) string
string.substring(int,int) string
string.trim() string
string.format(list<dyn>) string
list<string>.join() string
list<string>.join(string) string
strings.quote(string) string
string.find(string) string
string.findAll(string) list<string>
string.findAll(string,int) list<string>
list<A>.isSorted() bool
list<A>.sum() A
list<A>.min() A
list<A>.max() A
list<A>.indexOf(A) int
list<A>.lastIndexOf(A) int
list<A>.slice(int,int) list<A>
list<A>.flatten() list<dyn>
list<A>.flatten(int) list<dyn>
list<A>.sort() list<A>
list<A>.reverse() list<A>
list<A>.distinct() list<A>
list<A>.first() optional<A>
list<A>.last() optional<A>
lists.range(int) list<int>
sets.contains(list<A>,list<A>) bool
sets.equivalent(list<A>,list<A>) bool
sets.intersects(list<A>,list<A>) bool
url(string) kubernetes.URL
isURL(string) bool
kubernetes.URL.getScheme() string
kubernetes.URL.getHost() string
kubernetes.URL.getHostname() string
kubernetes.URL.getPort() string
kubernetes.URL.getEscapedPath() string
kubernetes.URL.getQuery() map<string,list<string>>
quantity(string) kubernetes.Quantity
isQuantity(string) bool
sign(kubernetes.Quantity) int
kubernetes.Quantity.isInteger() bool
kubernetes.Quantity.asInteger() int
kubernetes.Quantity.asApproximateFloat() double
kubernetes.Quantity.isGreaterThan(kubernetes.Quantity) bool
kubernetes.Quantity.isLessThan(kubernetes.Quantity) bool
kubernetes.Quantity.compareTo(kubernetes.Quantity) int
kubernetes.Quantity.add(kubernetes.Quantity) kubernetes.Quantity
kubernetes.Quantity.add(int) kubernetes.Quantity
kubernetes.Quantity.sub(kubernetes.Quantity) kubernetes.Quantity
kubernetes.Quantity.sub(int) kubernetes.Quantity
ip(string) kubernetes.IP
isIP(string) bool
ip.isCanonical(string) bool
kubernetes.IP.family() int
kubernetes.IP.isUnspecified() bool
kubernetes.IP.isLoopback() bool
kubernetes.IP.isLinkLocalMulticast() bool
kubernetes.IP.isLinkLocalUnicast() bool
kubernetes.IP.isGlobalUnicast() bool
cidr(string) kubernetes.CIDR
isCIDR(string) bool
kubernetes.CIDR.containsIP(string) bool
kubernetes.CIDR.containsIP(kubernetes.IP) bool
kubernetes.CIDR.containsCIDR(string) bool
kubernetes.CIDR.containsCIDR(kubernetes.CIDR) bool
kubernetes.CIDR.ip() kubernetes.IP
kubernetes.CIDR.masked() kubernetes.CIDR
kubernetes.CIDR.prefixLength() int
format.dns1123Label() kubernetes.NamedFormat
format.dns1123Subdomain() kubernetes.NamedFormat
format.dns1035Label() kubernetes.NamedFormat
format.qualifiedName() kubernetes.NamedFormat
format.dns1123LabelPrefix() kubernetes.NamedFormat
format.dns1123SubdomainPrefix() kubernetes.NamedFormat
format.dns1035LabelPrefix() kubernetes.NamedFormat
format.labelValue() kubernetes.NamedFormat
format.uri() kubernetes.NamedFormat
format.uuid() kubernetes.NamedFormat
format.byte() kubernetes.NamedFormat
format.date() kubernetes.NamedFormat
format.datetime() kubernetes.NamedFormat
format.named(string) optional<kubernetes.NamedFormat>
kubernetes.NamedFormat.validate(string) optional<list<string>>
semver(string) kubernetes.Semver
semver(string,bool) kubernetes.Semver
isSemver(string) bool
isSemver(string,bool) bool
kubernetes.Semver.isGreaterThan(kubernetes.Semver) bool
kubernetes.Semver.isLessThan(kubernetes.Semver) bool
kubernetes.Semver.compareTo(kubernetes.Semver) int
kubernetes.Semver.major() int
kubernetes.Semver.minor() int
kubernetes.Semver.patch() int
jsonpatch.escapeKey(string) string
kubernetes.authorization.Authorizer.path(string) kubernetes.authorization.PathCheck
kubernetes.authorization.Authorizer.group(string) kubernetes.authorization.GroupCheck
kubernetes.authorization.Authorizer.serviceAccount(string,string) kubernetes.authorization.Authorizer
kubernetes.authorization.GroupCheck.resource(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.subresource(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.namespace(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.name(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.fieldSelector(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.labelSelector(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.check(string) kubernetes.authorization.Decision
kubernetes.authorization.PathCheck.check(string) kubernetes.authorization.Decision
kubernetes.authorization.Decision.errored() bool
kubernetes.authorization.Decision.error() string
kubernetes.authorization.Decision.allowed() bool
kubernetes.authorization.Decision.reason() string
";

/// What can be compared.
const ORDERED: [&str; 8] = ["bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration"];

/// One way to call a function.
#[derive(Debug)]
pub struct Signature {
    /// The target first, for a method.
    pub params: Vec<Type>,
    pub method: bool,
    pub result: Type,
}

static SIGNATURES: LazyLock<HashMap<String, Vec<Signature>>> = LazyLock::new(|| {
    let mut all: HashMap<String, Vec<Signature>> = HashMap::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let (name, signature) = read(line);
        all.entry(name).or_default().push(signature);
    }
    for name in ["_<_", "_<=_", "_>_", "_>=_"] {
        let same = ORDERED.iter().map(|ty| (*ty, *ty));
        // Numbers of different types can be compared too.
        let numbers = ["int", "uint", "double"];
        let mixed = numbers.iter().flat_map(|a| numbers.iter().filter(move |b| *b != a).map(move |b| (*a, *b)));
        let signatures = same.chain(mixed).map(|(a, b)| Signature {
            params: vec![Type::parse(a), Type::parse(b)],
            method: false,
            result: Type::Bool,
        });
        all.insert(name.to_owned(), signatures.collect());
    }
    all
});

/// Every way to call a function.
pub fn of(name: &str) -> &'static [Signature] {
    SIGNATURES.get(name).map_or(&[], Vec::as_slice)
}

/// Whether a name with a dot is a function of its own, not a method of a variable.
pub fn is_namespaced(name: &str) -> bool {
    of(name).iter().any(|signature| !signature.method)
}

fn read(line: &str) -> (String, Signature) {
    let (call, result) = line.rsplit_once(") ").expect("our own table has results");
    let (head, args) = call.rsplit_once('(').expect("our own table has parameters");
    let mut params: Vec<Type> = split(args).into_iter().map(Type::parse).collect();
    // A method's target is a type; the few functions with a dot in their name have a lower-case word before it.
    let namespaced = ["optional.", "strings.", "lists.", "sets.", "ip.", "format.", "jsonpatch."];
    let function = namespaced.iter().any(|prefix| head.starts_with(prefix)) || !head.contains('.');
    let (name, method) = match head.rsplit_once('.') {
        Some((target, name)) if !function => {
            params.insert(0, Type::parse(target));
            (name, true)
        }
        _ => (head, false),
    };
    (name.to_owned(), Signature { params, method, result: Type::parse(result) })
}

/// At commas outside of brackets.
fn split(args: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, character) in args.char_indices() {
        match character {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&args[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < args.len() {
        parts.push(&args[start..]);
    }
    parts
}
