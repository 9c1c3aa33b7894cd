//! Chat templates: Jinja2 as Hugging Face's apply_chat_template runs it, on minijinja.

use std::fmt;
use std::io;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value};
use regex::Regex;

use crate::error::{Code, Result, TextError};
use crate::python;

const NAME: &str = "chat";
const NOW: &str = "__now__";
const MAX_SOURCE_BYTES: usize = 1 << 22;
const MAX_CONTEXT_BYTES: usize = 1 << 28;
const MAX_OUTPUT_BYTES: usize = 1 << 28;
/// One instruction costs one, 64 bytes of a string too.
const FUEL: u64 = 10_000_000;

/// A compiled template. Immutable; any thread may render.
pub struct Template {
    environment: Environment<'static>,
    source: Arc<str>,
}

/// Marks the message of raise_exception() among other errors.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl Template {
    pub fn compile(source: &str) -> Result<Self> {
        if source.len() > MAX_SOURCE_BYTES {
            let message = format!("the template has {} bytes, limit is {MAX_SOURCE_BYTES}", source.len());
            return Err(TextError::new(Code::Resource, "template", message));
        }
        let source: Arc<str> = without_generation_tags(source).into();
        let mut environment = environment().map_err(|error| described(&error, &source))?;
        environment.add_template_owned(NAME, source.to_string()).map_err(|error| described(&error, &source))?;
        Ok(Self { environment, source })
    }

    /// `now` is `YYYY-MM-DDTHH:MM:SS`.
    pub fn render(&self, context: &str, now: &str) -> Result<String> {
        if context.len() > MAX_CONTEXT_BYTES {
            let message = format!("the context has {} bytes, limit is {MAX_CONTEXT_BYTES}", context.len());
            return Err(TextError::new(Code::Resource, "context", message));
        }
        let context: serde_json::Value = serde_json::from_str(context)
            .map_err(|error| TextError::invalid("context", format!("the context is not JSON: {error}")))?;
        let serde_json::Value::Object(mut variables) = context else {
            return Err(TextError::invalid("context", "the context is not a JSON object"));
        };
        if python::Moment::parse(now).is_none() {
            return Err(TextError::invalid("now", format!("now is {now:?}, wanted is YYYY-MM-DDTHH:MM:SS")));
        }
        for name in ["tools", "documents"] {
            variables.entry(name).or_insert(serde_json::Value::Null);
        }
        variables.insert(NOW.to_owned(), serde_json::Value::from(now));
        let template = self.environment.get_template(NAME).map_err(|error| described(&error, &self.source))?;
        let mut output = Bounded(Vec::new());
        template
            .render_captured_to(Value::from(Serde(&variables)), &mut output)
            .map_err(|error| described(&error, &self.source))?;
        String::from_utf8(output.0).map_err(|_| TextError::internal("the rendered prompt is not UTF-8"))
    }
}

fn environment() -> std::result::Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_debug(false);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("tojson", python::tojson);
    environment.add_filter("int", python::int);
    environment.add_filter("float", python::float);
    environment.add_test("iterable", python::is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    Ok(environment)
}

fn raise_exception(message: Option<Value>, named: Kwargs) -> std::result::Result<Value, Error> {
    let message = message.or(named.get("message")?).unwrap_or_default().to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn strftime_now(state: &State, format: &str) -> std::result::Result<String, Error> {
    let now = state.lookup(NOW).and_then(|now| python::Moment::parse(now.as_str()?));
    let now = now.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "strftime_now: the clock was overwritten"))?;
    Ok(now.format(format))
}

/// minijinja has no custom tags: `generation` blocks (training masks) become blocks that always print.
fn without_generation_tags(source: &str) -> String {
    let tag = Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("the expression is a constant");
    tag.replace_all(source, |found: &regex::Captures| {
        let body = if found.get(2).is_some() { "endif" } else { "if true" };
        format!("{{%{} {body} {}%}}", &found[1], &found[3])
    })
    .into_owned()
}

/// The message of raise_exception() as it is; any other fault with its line and the text of that line.
fn described(error: &Error, source: &str) -> TextError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref::<Raised>() {
            return TextError::invalid("messages", message.clone());
        }
        cause = current.source();
    }
    const LONGEST_EXCERPT: usize = 160;
    let detail = error.detail().map_or_else(|| error.kind().to_string(), |text| format!("{}: {text}", error.kind()));
    let line = error.line().unwrap_or(0);
    let excerpt: String =
        source.lines().nth(line.saturating_sub(1)).unwrap_or("").trim().chars().take(LONGEST_EXCERPT).collect();
    let message = match line {
        0 => format!("template: {detail}"),
        _ => format!("template line {line}: {detail}, at: {excerpt}"),
    };
    let code = if error.kind() == ErrorKind::OutOfFuel { Code::Resource } else { Code::InvalidArgument };
    TextError::new(code, "template", message)
}

/// Output that refuses to grow beyond the limit.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT_BYTES {
            return Err(io::Error::other(format!("the prompt is longer than {MAX_OUTPUT_BYTES} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, context: &str) -> Result<String> {
        Template::compile(source)?.render(context, "2024-07-26T12:00:00")
    }

    #[test]
    fn python_semantics() {
        let cases = [
            ("{{ {'b': 1, 'a': [1.5, none, true]}|tojson }}", r#"{"b": 1, "a": [1.5, null, true]}"#),
            ("{{ {'b': 1, 'a': 'é<'}|tojson(sort_keys=true, ensure_ascii=true) }}", r#"{"a": "\u00e9<", "b": 1}"#),
            ("{{ {'a': [1, {}], 'b': []}|tojson(indent=2) }}", "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}"),
            ("{{ [1, 2]|tojson(separators=(',', ':')) }}", "[1,2]"),
            ("{{ 'abc'|float }} {{ '1.5'|float }} {{ 'x'|int(7) }} {{ '12.9'|int }} {{ none|int }}", "0.0 1.5 7 12 0"),
            (
                "{{ none is iterable }} {{ [] is iterable }} {{ 'a' is iterable }} {{ 3 is iterable }}",
                "False True True False",
            ),
            ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
            ("{{ tools }} {{ documents is none }} {{ missing }}|", "None True |"),
            ("{%- generation -%}\n x \n{%- endgeneration -%}\n.", "x."),
            ("{{ ' a '.strip() }}{{ 'a,b'.split(',')[1] }}{{ {'k': 1}.items()|list }}", "ab[('k', 1)]"),
            ("{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
            ("  {% if true %}\nx\n  {% endif %}\n", "x\n"),
            ("{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}", "2"),
            ("{{ [true, none, 'it', \"it's\", 1.0, {'a': 'b'}] }}", r#"[True, None, 'it', "it's", 1.0, {'a': 'b'}]"#),
        ];
        for (source, expected) in cases {
            assert_eq!(render(source, "{}").map_err(|error| error.message), Ok(expected.to_owned()), "{source}");
        }
    }

    #[test]
    fn faults_are_described() {
        let error = render("{{ raise_exception('Only user and <assistant>') }}", "{}").unwrap_err();
        assert_eq!((error.message.as_str(), error.field.as_str()), ("Only user and <assistant>", "messages"));
        let error = render("a\n{{ x.y }}", "{}").unwrap_err();
        assert!(error.message.starts_with("template line 2: ") && error.message.contains("x.y"), "{}", error.message);
        let error = render("\n\n{% if %}", "{}").unwrap_err();
        assert!(error.message.starts_with("template line 3: "), "{}", error.message);
        for context in ["", "[]", "{", "nul"] {
            assert_eq!(render("x", context).unwrap_err().field, "context");
        }
    }

    #[test]
    fn run_away_templates_end() {
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}";
        assert_eq!(render(endless, "{}").unwrap_err().code, Code::Resource);
        let doubling =
            "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
        assert_eq!(render(doubling, "{}").unwrap_err().code, Code::Resource);
        let escaping =
            "{% set ns = namespace(x='\"') %}{% for i in range(60) %}{% set ns.x = ns.x|tojson %}{% endfor %}";
        assert!(render(escaping, "{}").is_err());
        let recursive = "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}";
        assert!(render(recursive, "{}").is_err());
        let nested = "{{ ".to_owned() + &"(".repeat(100_000) + &")".repeat(100_000) + " }}";
        assert!(render(&nested, "{}").is_err());
        let nested = "{% if true %}".repeat(20_000);
        assert!(render(&nested, "{}").is_err());
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(render("x", &format!("{{\"a\": {deep}}}")).is_err());
        let fat = "{{ 'x' * 2000000000 }}";
        assert!(render(fat, "{}").is_err());
    }
}
