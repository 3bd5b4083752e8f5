// Package report writes what a bug report needs into one archive, without what its reader must not know.
//
// [Gather] reads every [Source]. A [Redactor] replaces secrets in the text, and addresses if it is asked to. All files are then
// searched for the secrets and addresses that are known, and there is no archive if one is left.
package report
