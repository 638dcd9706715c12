//! Memory that is not there: files that shrink, and files without pages.

attacks! {
    /// 1 GiB of which the switch has touched each page is cut off.
    gibibyte: "truncate";
    /// The same with huge pages.
    huge: "truncate-huge";
    /// Cut off and given back, over and over.
    again: "truncate-again";
    /// The same with huge pages.
    again_huge: "truncate-again-huge";
    /// Pages are taken away before the switch reads them.
    empty: "empty";
    /// Each packet touches another page of 2 GiB that has none.
    sparse: "sparse";
}
