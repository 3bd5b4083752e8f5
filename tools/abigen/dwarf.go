package main

import (
	"debug/dwarf"
	"fmt"
	"maps"
	"slices"
)

// readDWARF collects the structures and constants of the table.
func readDWARF(data *dwarf.Data) (arch, map[string]int64, error) {
	structs, values, err := definitions(data)
	if err != nil {
		return nil, nil, err
	}
	a := arch{}
	for _, c := range structNames() {
		off, ok := structs[c]
		if !ok {
			return nil, nil, fmt.Errorf("<infiniband/verbs.h> has no struct %s", c)
		}
		if a[c], err = readStruct(data, off); err != nil {
			return nil, nil, fmt.Errorf("struct %s: %w", c, err)
		}
	}
	used := map[string]int64{}
	for _, g := range constantGroups {
		for _, name := range g.list {
			c := name
			if other, ok := renamed[name]; ok {
				c = other
			}
			v, ok := values[c]
			if !ok {
				return nil, nil, fmt.Errorf("<infiniband/verbs.h> has no constant %s", c)
			}
			used[name] = v
		}
	}
	return a, used, nil
}

// definitions finds where each structure is defined, and the values of all enumerators.
func definitions(data *dwarf.Data) (structs map[string]dwarf.Offset, values map[string]int64, err error) {
	structs, values = map[string]dwarf.Offset{}, map[string]int64{}
	r := data.Reader()
	for {
		e, err := r.Next()
		if e == nil || err != nil {
			return structs, values, err
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		declaration, _ := e.Val(dwarf.AttrDeclaration).(bool)
		switch {
		case e.Tag == dwarf.TagStructType && name != "" && !declaration:
			structs[name] = e.Offset
		case e.Tag == dwarf.TagEnumerator:
			v, ok := e.Val(dwarf.AttrConstValue).(int64)
			if !ok {
				return nil, nil, fmt.Errorf("enumerator %s has no value", name)
			}
			values[name] = v
		}
	}
}

func readStruct(data *dwarf.Data, at dwarf.Offset) (structure, error) {
	t, err := data.Type(at)
	if err != nil {
		return structure{}, err
	}
	s := t.(*dwarf.StructType)
	align, err := alignOf(s)
	if err != nil {
		return structure{}, err
	}
	out := structure{Size: int(s.ByteSize), Align: align}
	return out, flatten(s, "", 0, &out.Members)
}

func structNames() []string {
	names := map[string]bool{}
	for _, m := range mirrors {
		names[m.c] = true
	}
	for _, a := range anchors {
		names[a.c] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// flatten lists the members of s with their dotted paths; those of an unnamed struct or union belong to its parent.
func flatten(s *dwarf.StructType, prefix string, base int, out *[]member) error {
	for _, f := range s.Field {
		at := base + int(f.ByteOffset)
		inner, nested := resolve(f.Type).(*dwarf.StructType)
		path := prefix + f.Name
		if f.Name != "" {
			m := member{Path: path, Offset: at, Size: int(f.Type.Size())}
			var err error
			if m.Align, err = alignOf(f.Type); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if m.Type, err = typeName(f.Type); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if f.BitSize != 0 {
				m.Type = "bits"
			}
			*out = append(*out, m)
			path += "."
		}
		if nested {
			if err := flatten(inner, path, at, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// resolve strips typedefs and qualifiers.
func resolve(t dwarf.Type) dwarf.Type {
	for {
		switch v := t.(type) {
		case *dwarf.TypedefType:
			t = v.Type
		case *dwarf.QualType:
			t = v.Type
		default:
			return t
		}
	}
}

func typeName(t dwarf.Type) (string, error) {
	switch v := resolve(t).(type) {
	case *dwarf.StructType:
		return v.Kind + " " + v.StructName, nil
	case *dwarf.ArrayType:
		elem, err := typeName(v.Type)
		return fmt.Sprintf("%s[%d]", elem, v.Count), err
	case *dwarf.PtrType:
		return "ptr", nil
	case *dwarf.EnumType, *dwarf.UintType, *dwarf.UcharType, *dwarf.BoolType:
		return fmt.Sprintf("u%d", 8*v.Size()), nil
	case *dwarf.IntType, *dwarf.CharType:
		return fmt.Sprintf("i%d", 8*v.Size()), nil
	default:
		return "", fmt.Errorf("no spelling for C type %s", t)
	}
}

// alignOf computes the natural alignment, which DWARF does not record; on both architectures a scalar has its size's.
func alignOf(t dwarf.Type) (int, error) {
	switch v := resolve(t).(type) {
	case *dwarf.StructType:
		align := 1
		for _, f := range v.Field {
			a, err := alignOf(f.Type)
			if err != nil {
				return 0, err
			}
			align = max(align, a)
		}
		return align, nil
	case *dwarf.ArrayType:
		return alignOf(v.Type)
	default:
		switch n := int(v.Size()); n {
		case 1, 2, 4, 8:
			return n, nil
		default:
			return 0, fmt.Errorf("no alignment known for C type %s of %d bytes", t, n)
		}
	}
}
