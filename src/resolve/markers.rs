//! Environment markers (PEP 508), evaluated for a device.
//!
//! `pep508_rs` turns a marker into a decision diagram that lives as long as the process, and whose size can grow with the
//! power of its length: fit for comparing markers, not for text from outside. Here a marker is only ever evaluated, for one
//! environment, so it is kept as the tree that it was written as.

use std::fmt;
use std::str::FromStr;

use pep440_rs::{Version, VersionSpecifier};

/// Deepest nesting of parentheses that is taken: the parser and the evaluation call themselves.
const DEEPEST: usize = 32;

/// Longest marker that is taken, in bytes. The longest of the public index have some 2,000.
const LONGEST: usize = 16_384;

/// A marker: what stands behind `;` in a requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker(Tree);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Tree {
    All(Vec<Tree>),
    Any(Vec<Tree>),
    Compare(Operand, Comparison, Operand),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operand {
    Variable(Variable),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    In,
    NotIn,
    Less,
    LessEqual,
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Compatible,
    Arbitrary,
}

/// The variables of markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variable {
    /// `os_name`
    OsName,
    /// `sys_platform`
    SysPlatform,
    /// `platform_machine`
    PlatformMachine,
    /// `platform_python_implementation`
    PlatformPythonImplementation,
    /// `platform_release`
    PlatformRelease,
    /// `platform_system`
    PlatformSystem,
    /// `platform_version`
    PlatformVersion,
    /// `python_version`
    PythonVersion,
    /// `python_full_version`
    PythonFullVersion,
    /// `implementation_name`
    ImplementationName,
    /// `implementation_version`
    ImplementationVersion,
    /// `extra`
    Extra,
}

impl Variable {
    /// The name as the specification has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OsName => "os_name",
            Self::SysPlatform => "sys_platform",
            Self::PlatformMachine => "platform_machine",
            Self::PlatformPythonImplementation => "platform_python_implementation",
            Self::PlatformRelease => "platform_release",
            Self::PlatformSystem => "platform_system",
            Self::PlatformVersion => "platform_version",
            Self::PythonVersion => "python_version",
            Self::PythonFullVersion => "python_full_version",
            Self::ImplementationName => "implementation_name",
            Self::ImplementationVersion => "implementation_version",
            Self::Extra => "extra",
        }
    }

    /// Reads a name, or one of the older spellings that `packaging` still takes.
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "os_name" | "os.name" => Self::OsName,
            "sys_platform" | "sys.platform" => Self::SysPlatform,
            "platform_machine" | "platform.machine" => Self::PlatformMachine,
            "platform_python_implementation" | "platform.python_implementation" | "python_implementation" => {
                Self::PlatformPythonImplementation
            }
            "platform_release" => Self::PlatformRelease,
            "platform_system" => Self::PlatformSystem,
            "platform_version" | "platform.version" => Self::PlatformVersion,
            "python_version" => Self::PythonVersion,
            "python_full_version" => Self::PythonFullVersion,
            "implementation_name" => Self::ImplementationName,
            "implementation_version" => Self::ImplementationVersion,
            "extra" => Self::Extra,
            _ => return None,
        })
    }
}

/// A variable whose value a device profile does not state, though a marker depends on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the marker depends on {}, which the profile of {device} does not state", variable.name())]
pub struct Missing {
    /// The variable.
    pub variable: Variable,
    /// The device profile.
    pub device: String,
}

/// Why a text is no marker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("marker {text:?}, byte {at}: expected {wanted}")]
pub struct NotAMarker {
    /// The text, cut to a length that can be shown.
    text: String,
    /// Offset in bytes.
    at: usize,
    /// What should stand there.
    wanted: &'static str,
}

/// The values of the variables on a device; none where its profile does not state one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    values: Vec<(Variable, String)>,
}

impl Environment {
    /// States a value.
    #[must_use]
    pub fn with(mut self, variable: Variable, value: impl Into<String>) -> Self {
        self.values.retain(|(known, _)| *known != variable);
        self.values.push((variable, value.into()));
        self
    }

    /// The value of a variable.
    pub fn value(&self, variable: Variable) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == variable).map(|(_, value)| value.as_str())
    }
}

impl Marker {
    /// Whether the marker holds in an environment, with an extra asked for or none.
    ///
    /// A value that is not stated makes an error only if the answer depends on it.
    pub fn holds(&self, environment: &Environment, extra: Option<&str>) -> Result<bool, Variable> {
        evaluate(&self.0, environment, extra)
    }
}

fn evaluate(tree: &Tree, environment: &Environment, extra: Option<&str>) -> Result<bool, Variable> {
    let (parts, decisive) = match tree {
        Tree::All(parts) => (parts, false),
        Tree::Any(parts) => (parts, true),
        Tree::Compare(left, comparison, right) => {
            let left_text = value(left, environment, extra)?;
            let right_text = value(right, environment, extra)?;
            let names_extra = [left, right].contains(&&Operand::Variable(Variable::Extra));
            return Ok(compare(left_text, *comparison, right_text, names_extra));
        }
    };
    let mut missing = None;
    for part in parts {
        match evaluate(part, environment, extra) {
            Ok(holds) if holds == decisive => return Ok(decisive),
            Ok(_) => {}
            Err(variable) => missing = missing.or(Some(variable)),
        }
    }
    missing.map_or(Ok(!decisive), Err)
}

fn value<'a>(
    operand: &'a Operand,
    environment: &'a Environment,
    extra: Option<&'a str>,
) -> Result<&'a str, Variable> {
    match operand {
        Operand::Text(text) => Ok(text),
        Operand::Variable(Variable::Extra) => Ok(extra.unwrap_or_default()),
        Operand::Variable(variable) => environment.value(*variable).ok_or(*variable),
    }
}

/// Compares as versions where both sides are, else as texts; extras by their normalized names.
fn compare(left: &str, comparison: Comparison, right: &str, names_extra: bool) -> bool {
    if names_extra {
        let (left, right) = (normalized(left), normalized(right));
        return match comparison {
            Comparison::NotEqual => left != right,
            Comparison::In => right.contains(&left),
            Comparison::NotIn => !right.contains(&left),
            _ => left == right,
        };
    }
    let sign = match comparison {
        Comparison::In => return right.contains(left),
        Comparison::NotIn => return !right.contains(left),
        Comparison::Less => "<",
        Comparison::LessEqual => "<=",
        Comparison::Equal => "==",
        Comparison::NotEqual => "!=",
        Comparison::Greater => ">",
        Comparison::GreaterEqual => ">=",
        Comparison::Compatible => "~=",
        Comparison::Arbitrary => return left == right,
    };
    if let (Ok(version), Ok(specifier)) =
        (left.parse::<Version>(), format!("{sign}{right}").parse::<VersionSpecifier>())
    {
        return specifier.contains(&version);
    }
    match comparison {
        Comparison::Less => left < right,
        Comparison::LessEqual => left <= right,
        Comparison::NotEqual => left != right,
        Comparison::Greater => left > right,
        Comparison::GreaterEqual => left >= right,
        _ => left == right,
    }
}

/// The name of an extra, normalized as PEP 685 says.
pub(super) fn normalized(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '-' | '_' | '.' if text.ends_with('-') => {}
            '-' | '_' | '.' => text.push('-'),
            letter => text.push(letter.to_ascii_lowercase()),
        }
    }
    text
}

impl FromStr for Marker {
    type Err = NotAMarker;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        if text.len() > LONGEST {
            return Err(parser.wanted("a shorter marker"));
        }
        let tree = parser.any()?;
        parser.space();
        match parser.rest() {
            "" => Ok(Self(tree)),
            _ => Err(parser.wanted("'and', 'or' or the end")),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn wanted(&self, wanted: &'static str) -> NotAMarker {
        NotAMarker { text: self.text.chars().take(120).collect(), at: self.at, wanted }
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn takes(&mut self, sign: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(sign);
        self.at += if found { sign.len() } else { 0 };
        found
    }

    /// Takes a word that no letter follows.
    fn takes_word(&mut self, word: &str) -> bool {
        self.space();
        let behind = self.rest().strip_prefix(word);
        let found = behind
            .is_some_and(|behind| !behind.starts_with(|next: char| next.is_alphanumeric() || next == '_'));
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn any(&mut self) -> Result<Tree, NotAMarker> {
        let first = self.all()?;
        let mut parts = vec![first];
        while self.takes_word("or") {
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Tree::Any(parts) })
    }

    fn all(&mut self) -> Result<Tree, NotAMarker> {
        let first = self.term()?;
        let mut parts = vec![first];
        while self.takes_word("and") {
            parts.push(self.term()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Tree::All(parts) })
    }

    fn term(&mut self) -> Result<Tree, NotAMarker> {
        if self.takes("(") {
            self.depth += 1;
            if self.depth > DEEPEST {
                return Err(self.wanted("fewer parentheses"));
            }
            let inner = self.any()?;
            self.depth -= 1;
            return if self.takes(")") { Ok(inner) } else { Err(self.wanted("')'")) };
        }
        Ok(Tree::Compare(self.operand()?, self.comparison()?, self.operand()?))
    }

    fn operand(&mut self) -> Result<Operand, NotAMarker> {
        self.space();
        let rest = self.rest();
        if let Some(quote @ ('\'' | '"')) = rest.chars().next() {
            let length = rest[1..].find(quote).ok_or_else(|| self.wanted("a closing quote"))?;
            self.at += length + 2;
            return Ok(Operand::Text(rest[1..=length].to_owned()));
        }
        let length = rest
            .find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == '.'))
            .unwrap_or(rest.len());
        let variable =
            Variable::of(&rest[..length]).ok_or_else(|| self.wanted("a variable or a quoted text"))?;
        self.at += length;
        Ok(Operand::Variable(variable))
    }

    fn comparison(&mut self) -> Result<Comparison, NotAMarker> {
        for (sign, comparison) in [
            ("===", Comparison::Arbitrary),
            ("==", Comparison::Equal),
            ("~=", Comparison::Compatible),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessEqual),
            (">=", Comparison::GreaterEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ] {
            if self.takes(sign) {
                return Ok(comparison);
            }
        }
        if self.takes_word("in") {
            return Ok(Comparison::In);
        }
        if self.takes_word("not") && self.takes_word("in") {
            return Ok(Comparison::NotIn);
        }
        Err(self.wanted("a comparison"))
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orin() -> Environment {
        Environment::default()
            .with(Variable::PlatformMachine, "aarch64")
            .with(Variable::PlatformRelease, "5.15.148-tegra")
            .with(Variable::PythonVersion, "3.10")
            .with(Variable::PythonFullVersion, "3.10.12")
            .with(Variable::SysPlatform, "linux")
    }

    /// Expected values from `packaging.markers.Marker(...).evaluate({...})` of packaging 26.4.
    #[test]
    fn agrees_with_packaging() {
        for (marker, wanted) in [
            ("python_version >= '3.9'", true),
            ("python_version < '3.9'", false),
            ("'3.9' < python_version", true),
            ("python_full_version ~= '3.10.4'", true),
            ("python_version in '3.8 3.9'", false),
            ("python_version not in '3.8, 3.9'", true),
            ("'tegra' in platform_release", true),
            ("\"tegra\" not in platform_release", false),
            ("platform_machine == 'x86_64' or sys_platform == 'linux'", true),
            ("platform_machine == 'x86_64' and (sys_platform == 'linux' or extra == 'x')", false),
            ("platform_machine!='aarch64'and(sys_platform=='linux')", false),
            ("extra == 'x'", false),
        ] {
            assert_eq!(marker.parse::<Marker>().unwrap().holds(&orin(), None), Ok(wanted), "{marker}");
        }
        let extra: Marker = "extra == 'Big_One'".parse().unwrap();
        assert_eq!(extra.holds(&orin(), Some("big-one")), Ok(true));
    }

    #[test]
    fn names_the_missing_value_only_if_it_matters() {
        let holds = |text: &str| text.parse::<Marker>().unwrap().holds(&orin(), None);
        assert_eq!(holds("platform_version >= '5'"), Err(Variable::PlatformVersion));
        assert_eq!(holds("platform_version >= '5' and sys_platform == 'win32'"), Ok(false));
        assert_eq!(holds("platform_version >= '5' or sys_platform == 'linux'"), Ok(true));
    }

    #[test]
    fn refuses_other_texts() {
        for text in
            ["", "python_version", "python_version >=", "x == 'y'", "os_name == 'a", "os_name == 'a' xor"]
        {
            assert!(text.parse::<Marker>().is_err(), "{text}");
        }
        assert!(format!("{}os_name == 'a'", "(".repeat(100_000)).parse::<Marker>().is_err());
        assert!(format!("{}os_name == 'a'", "(".repeat(100)).parse::<Marker>().is_err());
    }
}
