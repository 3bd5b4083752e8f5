// Package proved remembers with which files a test that takes long has passed, so that it is left out until one of them changes.
package proved
