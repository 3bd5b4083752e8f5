// Package draw shows a person what a demonstration does: a picture of the
// triangle, the lanes that the plugin reports, and the output of the ranks sorted
// by what matters.
package draw
