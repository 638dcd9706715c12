//! Annotations as P4Info has them: as text, structured, or in fields of their own.

use num_traits::ToPrimitive;

use super::proto::expression::Value as Literal;
use super::proto::structured_annotation::Body;
use super::proto::{
    Documentation, Expression, ExpressionList, KeyValuePair, KeyValuePairList, StructuredAnnotation,
};
use crate::hir::{Annotation, AnnotationBody, Value};

/// Annotations of an object, without those that P4Info has fields for.
pub(super) struct Annotations {
    /// Unstructured ones, as text.
    pub(super) texts: Vec<String>,
    /// Structured ones.
    pub(super) structured: Vec<StructuredAnnotation>,
    /// Description.
    pub(super) doc: Option<Documentation>,
}

impl Annotations {
    /// Annotations but for `hidden` ones, which have fields of their own in the message.
    pub(super) fn of(annotations: &[Annotation], hidden: &[&str]) -> Annotations {
        let mut result = Annotations { texts: Vec::new(), structured: Vec::new(), doc: None };
        for annotation in annotations {
            match &annotation.body {
                AnnotationBody::Tokens(_) if matches!(annotation.name.as_str(), "name" | "id") => {}
                AnnotationBody::Tokens(_) if annotation.name == "brief" => {
                    result.doc.get_or_insert_default().brief = string(annotation).unwrap_or_default();
                }
                AnnotationBody::Tokens(_) if annotation.name == "description" => {
                    result.doc.get_or_insert_default().description = string(annotation).unwrap_or_default();
                }
                AnnotationBody::Tokens(_) if hidden.contains(&annotation.name.as_str()) => {}
                AnnotationBody::Tokens(tokens) if tokens.is_empty() => {
                    result.texts.push(format!("@{}", annotation.name))
                }
                AnnotationBody::Tokens(tokens) => {
                    result.texts.push(format!("@{}({})", annotation.name, tokens.join(" ")));
                }
                AnnotationBody::Values(values) => result.structured.push(StructuredAnnotation {
                    name: annotation.name.clone(),
                    body: Some(Body::ExpressionList(ExpressionList {
                        expressions: values.iter().map(literal).collect(),
                    })),
                    source_location: None,
                }),
                AnnotationBody::KeyValues(pairs) => result.structured.push(StructuredAnnotation {
                    name: annotation.name.clone(),
                    body: Some(Body::KvPairList(KeyValuePairList {
                        kv_pairs: pairs
                            .iter()
                            .map(|(key, value)| KeyValuePair {
                                key: key.clone(),
                                value: Some(literal(value)),
                            })
                            .collect(),
                    })),
                    source_location: None,
                }),
            }
        }
        result
    }
}

/// A value; one without a form in P4Info is left out.
fn literal(value: &Value) -> Expression {
    Expression {
        value: match value {
            Value::Bool(value) => Some(Literal::BoolValue(*value)),
            Value::Integer(value) => value.to_i64().map(Literal::Int64Value),
            Value::String(text) => Some(Literal::StringValue(text.clone())),
            Value::Error(_) | Value::MatchKind(_) | Value::List(_) | Value::Invalid => None,
        },
    }
}

/// The annotation of a name.
pub(super) fn find<'a>(annotations: &'a [Annotation], name: &str) -> Option<&'a Annotation> {
    annotations.iter().find(|annotation| annotation.name == name)
}

/// Whether there is an annotation.
pub(super) fn has(annotations: &[Annotation], name: &str) -> bool {
    find(annotations, name).is_some()
}

/// The tokens of an unstructured annotation.
pub(super) fn tokens(annotation: &Annotation) -> &[String] {
    match &annotation.body {
        AnnotationBody::Tokens(tokens) => tokens,
        AnnotationBody::Values(_) | AnnotationBody::KeyValues(_) => &[],
    }
}

/// The string that is an annotation's only argument.
pub(super) fn string(annotation: &Annotation) -> Option<String> {
    match &annotation.body {
        AnnotationBody::Tokens(tokens) => match tokens.as_slice() {
            [token] => unquoted(token).map(str::to_owned),
            _ => None,
        },
        AnnotationBody::Values(values) => match values.as_slice() {
            [Value::String(text)] => Some(text.clone()),
            _ => None,
        },
        AnnotationBody::KeyValues(_) => None,
    }
}

/// The integer that is an annotation's only argument.
pub(super) fn integer(annotation: &Annotation) -> Option<i64> {
    match &annotation.body {
        AnnotationBody::Tokens(tokens) => match tokens.as_slice() {
            [token] => number(token),
            [minus, token] if minus == "-" => number(token)?.checked_neg(),
            _ => None,
        },
        AnnotationBody::Values(values) => match values.as_slice() {
            [Value::Integer(value)] => value.to_i64(),
            _ => None,
        },
        AnnotationBody::KeyValues(_) => None,
    }
}

/// The value of `@id`.
pub(super) fn id(annotations: &[Annotation]) -> Option<u32> {
    u32::try_from(integer(find(annotations, "id")?)?).ok()
}

/// Keys and values of an annotation: `@pkginfo(name = "a", version = "b")`, with parentheses or brackets.
pub(super) fn key_values(annotation: &Annotation) -> Vec<(String, Literal)> {
    match &annotation.body {
        AnnotationBody::Tokens(tokens) => tokens
            .split(|token| token == ",")
            .filter_map(|pair| match pair {
                [key, equal, value] if equal == "=" => {
                    let text = unquoted(value).map(|text| Literal::StringValue(text.to_owned()));
                    Some((key.clone(), text.or_else(|| number(value).map(Literal::Int64Value))?))
                }
                _ => None,
            })
            .collect(),
        AnnotationBody::KeyValues(pairs) => {
            pairs.iter().filter_map(|(key, value)| Some((key.clone(), literal(value).value?))).collect()
        }
        AnnotationBody::Values(_) => Vec::new(),
    }
}

/// The text in a string's token.
pub(super) fn unquoted(token: &str) -> Option<&str> {
    token.strip_prefix('"')?.strip_suffix('"')
}

/// The value of an integer's token: `7`, `0x1F`, `8w7`, `1_000`.
pub(super) fn number(token: &str) -> Option<i64> {
    let digits: String = token.chars().filter(|c| *c != '_').collect();
    let digits =
        digits.split_once(['w', 's']).map_or(digits.as_str(), |(_, value)| value).to_ascii_lowercase();
    let (base, digits) = match digits.get(..2) {
        Some("0x") => (16, digits.get(2..)?),
        Some("0b") => (2, digits.get(2..)?),
        Some("0o") => (8, digits.get(2..)?),
        Some("0d") => (10, digits.get(2..)?),
        _ => (10, digits.as_str()),
    };
    // A sign would be a token of its own.
    if digits.starts_with(['+', '-']) { None } else { i64::from_str_radix(digits, base).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Span;

    fn annotation(name: &str, tokens: &[&str]) -> Annotation {
        let body = AnnotationBody::Tokens(tokens.iter().map(|token| (*token).to_owned()).collect());
        Annotation { name: name.to_owned(), body, span: Span::default() }
    }

    #[test]
    fn unstructured_annotations_are_text() {
        let list = [
            annotation("name", &["\"x\""]),
            annotation("defaultonly", &[]),
            annotation("mine", &["a", "\"b c\""]),
            annotation("brief", &["\"what it does\""]),
            annotation("match", &["lpm"]),
        ];
        let annotations = Annotations::of(&list, &["match"]);
        assert_eq!(annotations.texts, ["@defaultonly", "@mine(a \"b c\")"]);
        let doc = Documentation { brief: "what it does".to_owned(), description: String::new() };
        assert_eq!(annotations.doc, Some(doc));
        assert!(annotations.structured.is_empty());
    }

    #[test]
    fn structured_annotations_keep_their_values() {
        let values = vec![Value::Integer((-1).into()), Value::Bool(true), Value::String("s".to_owned())];
        let body = AnnotationBody::Values(values);
        let list = [Annotation { name: "id".to_owned(), body, span: Span::default() }];
        let annotations = Annotations::of(&list, &["id"]);
        let expected =
            [Literal::Int64Value(-1), Literal::BoolValue(true), Literal::StringValue("s".to_owned())];
        let [StructuredAnnotation { body: Some(Body::ExpressionList(found)), .. }] =
            annotations.structured.as_slice()
        else {
            panic!("{:?}", annotations.structured);
        };
        assert_eq!(found.expressions, expected.map(|value| Expression { value: Some(value) }));
    }

    #[test]
    fn integers_may_have_base_and_width() {
        for (text, value) in
            [("7", 7), ("0x1F", 31), ("8w7", 7), ("32w0x10", 16), ("1_000", 1000), ("0b101", 5)]
        {
            assert_eq!(number(text), Some(value), "{text}");
        }
        for text in ["", "x", "0x", "-1", "\u{20ac}0"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn keys_with_values() {
        let tokens = ["name", "=", "\"n\"", ",", "size", "=", "4", ",", "odd"];
        let pairs = key_values(&annotation("pkginfo", &tokens));
        let expected = [("name", Literal::StringValue("n".to_owned())), ("size", Literal::Int64Value(4))];
        assert_eq!(pairs, expected.map(|(key, value)| (key.to_owned(), value)));
    }
}
