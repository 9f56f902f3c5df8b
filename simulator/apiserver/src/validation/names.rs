//! The forms of names, labels and their values.

const LABEL_LENGTH_MAX: usize = 63;
const SUBDOMAIN_LENGTH_MAX: usize = 253;

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                         start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                           start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                           for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| inner(*byte))
        && bytes.last().is_some_and(|byte| inner(*byte))
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// What is wrong with a DNS label.
pub(crate) fn label_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LABEL_LENGTH_MAX {
        problems.push(too_long(LABEL_LENGTH_MAX));
    }
    if !is_label(text) {
        problems.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
                 alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL_FORMAT}')"
            )
        });
    }
    problems
}

/// What is wrong with a DNS subdomain.
pub(crate) fn subdomain_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > SUBDOMAIN_LENGTH_MAX {
        problems.push(too_long(SUBDOMAIN_LENGTH_MAX));
    }
    if !is_subdomain(text) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

/// What is wrong with a name that only has to fit into a path.
pub(super) fn path_problems(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    let found = ["/", "%"].into_iter().filter(|part| text.contains(part));
    found.map(|part| format!("may not contain '{part}'")).collect()
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// What is wrong with a key of labels or annotations, or a finalizer.
pub(crate) fn qualified_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let of_prefix = subdomain_problems(prefix);
                problems.extend(of_prefix.into_iter().map(|problem| format!("prefix part {problem}")));
            }
            *name
        }
        _ => {
            let prefixed = QUALIFIED.replacen("name part", "a qualified name", 1);
            problems.push(format!(
                "{prefixed} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return problems;
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LENGTH_MAX {
        problems.push(format!("name part {}", too_long(LABEL_LENGTH_MAX)));
    }
    if !is_name_part(name) {
        problems.push(QUALIFIED.to_owned());
    }
    problems
}

pub(crate) fn label_value_problem(text: &str) -> Option<String> {
    if text.len() > LABEL_LENGTH_MAX {
        return Some(too_long(LABEL_LENGTH_MAX));
    }
    (!text.is_empty() && !is_name_part(text)).then(|| LABEL_VALUE.to_owned())
}
