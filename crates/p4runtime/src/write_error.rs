//! The status of a failed write.

use p4runtime_proto::{rpc, v1};
use p4switch::{Failure, WriteFailure};
use prost::Message;
use prost_types::Any;
use tonic::{Code, Status};

const TYPE: &str = "type.googleapis.com/p4.v1.Error";

/// Returns the status: details have one `p4.v1.Error` for each update, in order, within `limit` bytes. Too many of them
/// lose their messages, and if that does not suffice, the status has no details: its message says so.
pub(crate) fn status(failure: WriteFailure, limit: usize) -> Status {
    match failure {
        WriteFailure::Request(failure) => plain(failure),
        WriteFailure::Updates(results) => {
            let message = summary(&results);
            // Each result names its type.
            let may_fit = results.len().saturating_mul(TYPE.len()) <= limit;
            let full = [true, false].into_iter().filter(|_| may_fit).find_map(|has_messages| {
                let details = results.iter().map(|result| error(result, has_messages)).collect();
                let status = rpc::Status { code: Code::Unknown as i32, message: message.clone(), details };
                Some(status).filter(|status| status.encoded_len() <= limit)
            });
            match full {
                Some(status) => Status::with_details(Code::Unknown, message, status.encode_to_vec().into()),
                None => Status::unknown(format!(
                    "{message}; the results of all updates are longer than {limit} bytes: write fewer at a time to \
                     get them"
                )),
            }
        }
    }
}

/// Returns the status of any other refused request.
pub(crate) fn plain(failure: Failure) -> Status {
    Status::new(failure.code, failure.message)
}

/// Says how many updates failed, and why the first one did: not every client shows details.
fn summary(results: &[Result<(), Failure>]) -> String {
    let mut failed =
        results.iter().enumerate().filter_map(|(index, result)| Some((index, result.as_ref().err()?)));
    let Some((index, first)) = failed.next() else { return "the write failed".into() };
    let (failures, all) = (failed.count() + 1, results.len());
    let plural = if all == 1 { "" } else { "s" };
    format!("{failures} of {all} update{plural} failed; first: update {}: {first}", index + 1)
}

fn error(result: &Result<(), Failure>, has_message: bool) -> Any {
    let error = match result {
        Ok(()) => v1::Error::default(),
        Err(failure) => v1::Error {
            canonical_code: failure.code as i32,
            message: if has_message { failure.message.clone() } else { String::new() },
            ..v1::Error::default()
        },
    };
    Any { type_url: TYPE.into(), value: error.encode_to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> WriteFailure {
        let full = Failure::new(Code::ResourceExhausted, "table `t` is full");
        let twice = Failure::new(Code::AlreadyExists, "the entry exists");
        WriteFailure::Updates(vec![Ok(()), Err(full), Ok(()), Err(twice)])
    }

    fn details(status: &Status) -> Vec<(i32, String)> {
        let inner = rpc::Status::decode(status.details()).unwrap();
        assert_eq!((inner.code, inner.message.as_str()), (2, status.message()));
        let error = |any: &Any| {
            assert_eq!(any.type_url, "type.googleapis.com/p4.v1.Error");
            let error = v1::Error::decode(any.value.as_slice()).unwrap();
            (error.canonical_code, error.message)
        };
        inner.details.iter().map(error).collect()
    }

    #[test]
    fn each_update_has_its_result() {
        let status = status(failure(), 1000);
        assert_eq!(status.code(), Code::Unknown);
        assert_eq!(status.message(), "2 of 4 updates failed; first: update 2: table `t` is full");
        let expected = [(0, ""), (8, "table `t` is full"), (0, ""), (6, "the entry exists")];
        assert_eq!(details(&status), expected.map(|(code, message)| (code, message.to_owned())));
    }

    #[test]
    fn details_are_bounded() {
        let brief = status(failure(), 230);
        assert_eq!(details(&brief), [0, 8, 0, 6].map(|code| (code, String::new())));
        let none = status(failure(), 200);
        assert_eq!(none.details(), b"");
        assert_eq!(
            none.message(),
            "2 of 4 updates failed; first: update 2: table `t` is full; the results of all updates are longer than \
             200 bytes: write fewer at a time to get them"
        );
    }

    #[test]
    fn a_refused_request_has_no_details() {
        let status = status(Failure::new(Code::FailedPrecondition, "no program").into(), 1000);
        assert_eq!(
            (status.code(), status.message(), status.details()),
            (Code::FailedPrecondition, "no program", &[][..])
        );
    }
}
