// The program of the demonstration's image shop/migrate. Its modules are old on purpose: they have known
// vulnerabilities that the demonstration finds. Nothing else uses them.
module example.org/shop/migrate

go 1.26.0

require (
	golang.org/x/text v0.3.5
	gopkg.in/yaml.v3 v3.0.0
)
