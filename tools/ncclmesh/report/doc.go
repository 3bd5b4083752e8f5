// Package report writes what a bug report needs into one archive, and nothing that its reader must not know.
//
// Every [Source] is read, redacted by a [Redactor] and then looked through for what it must not hold, by another way than it
// was redacted: an archive that fails this is not written.
package report
