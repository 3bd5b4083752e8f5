package lab

import "ncclmesh/tests/internal/draw"

// Draw returns a picture of a triangle.
func Draw(m Mesh) string {
	var hosts [3]string
	var cables [3]draw.Cable
	for i := range hosts {
		hosts[i] = Host(m.Machines[i])
		c := m.Cables[i]
		cables[i].Net = c.Net
		for j, e := range c.Ends {
			cables[i].Ends[j] = draw.Port{Name: e.Device, Addr: e.Addr}
		}
	}
	return draw.Triangle(hosts, cables)
}
