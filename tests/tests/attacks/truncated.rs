//! Missing memory: files that shrink, and files without pages.

attacks! {
    /// 1 GiB is truncated after the switch has touched each page.
    gibibyte: "truncate";
    /// The same with huge pages.
    huge: "truncate-huge";
    /// Truncated and restored, over and over.
    again: "truncate-again";
    /// The same with huge pages.
    again_huge: "truncate-again-huge";
    /// Pages are punched out before the switch reads them.
    empty: "empty";
    /// Each packet touches another page of 2 GiB without pages.
    sparse: "sparse";
}
