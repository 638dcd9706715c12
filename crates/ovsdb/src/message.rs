//! Messages of JSON-RPC 1.0 (RFC 7047 §4).

use serde_json::{Map, Value as Json, json};

use crate::value::shortened;

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A request; its `id` is not null.
    Request {
        /// Identifies the reply.
        id: Json,
        /// The method's name.
        method: String,
        /// The parameters.
        params: Vec<Json>,
    },
    /// A request without a reply.
    Notification {
        /// The method's name.
        method: String,
        /// The parameters.
        params: Vec<Json>,
    },
    /// A reply.
    Reply {
        /// The request's `id`.
        id: Json,
        /// The result, or the error, which is not null.
        outcome: Result<Json, Json>,
    },
}

/// Bytes that are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The bytes are not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// The JSON is not a message.
    #[error("not a JSON-RPC message: expected {expected}, found {found}")]
    Form {
        /// What should be there.
        expected: &'static str,
        /// The JSON found, shortened.
        found: String,
    },
}

impl Message {
    /// Decodes a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let json: Json =
            serde_json::from_slice(bytes).map_err(|error| MessageError::Json(error.to_string()))?;
        let error = |expected, found: &Json| MessageError::Form { expected, found: shortened(found) };
        let Json::Object(mut object) = json else { return Err(error("an object", &json)) };
        let mut take = |key: &str| object.remove(key).unwrap_or(Json::Null);
        let (id, method, params) = (take("id"), take("method"), take("params"));
        let (result, failure) = (take("result"), take("error"));
        if method.is_null() {
            return match (id.is_null(), failure.is_null()) {
                (true, _) => Err(error("a `method`, or an `id` that is not null", &Json::Object(object))),
                (false, true) => Ok(Message::Reply { id, outcome: Ok(result) }),
                (false, false) => Ok(Message::Reply { id, outcome: Err(failure) }),
            };
        }
        let Json::String(method) = method else { return Err(error("a string as `method`", &method)) };
        let Json::Array(params) = params else { return Err(error("an array as `params`", &params)) };
        Ok(match id {
            Json::Null => Message::Notification { method, params },
            id => Message::Request { id, method, params },
        })
    }

    /// Encodes a message.
    pub fn encode(&self) -> Json {
        let object: Map<String, Json> = match self {
            Message::Request { id, method, params } => [
                ("id".to_owned(), id.clone()),
                ("method".to_owned(), json!(method)),
                ("params".to_owned(), json!(params)),
            ]
            .into_iter()
            .collect(),
            Message::Notification { method, params } => [
                ("id".to_owned(), Json::Null),
                ("method".to_owned(), json!(method)),
                ("params".to_owned(), json!(params)),
            ]
            .into_iter()
            .collect(),
            Message::Reply { id, outcome } => {
                let (result, error) = match outcome {
                    Ok(result) => (result.clone(), Json::Null),
                    Err(error) => (Json::Null, error.clone()),
                };
                [("id".to_owned(), id.clone()), ("result".to_owned(), result), ("error".to_owned(), error)]
                    .into_iter()
                    .collect()
            }
        };
        Json::Object(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        for message in [
            Message::Request { id: json!(1), method: "echo".into(), params: vec![json!("x")] },
            Message::Notification { method: "update".into(), params: vec![] },
            Message::Reply { id: json!("a"), outcome: Ok(json!({})) },
            Message::Reply { id: json!("a"), outcome: Ok(Json::Null) },
            Message::Reply { id: json!([2]), outcome: Err(json!("unknown method")) },
        ] {
            let bytes = message.encode().to_string();
            assert_eq!(Message::decode(bytes.as_bytes()), Ok(message));
        }
    }

    #[test]
    fn other_objects_are_refused() {
        let refused = |text: &str| Message::decode(text.as_bytes()).unwrap_err().to_string();
        let prefix = "not a JSON-RPC message: expected";
        assert!(refused("{").starts_with("not JSON: "));
        assert_eq!(refused("[]"), format!("{prefix} an object, found []"));
        assert_eq!(refused("{}"), format!("{prefix} a `method`, or an `id` that is not null, found {{}}"));
        assert_eq!(refused(r#"{"method":1}"#), format!("{prefix} a string as `method`, found 1"));
        assert_eq!(refused(r#"{"method":"m"}"#), format!("{prefix} an array as `params`, found null"));
        let deep = format!("{}{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        assert!(refused(&deep).contains("recursion limit"));
    }
}
