package pods

import (
	"fmt"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
)

// maxDecoded bounds the remainders that a decoder keeps, about 4 KB each.
const maxDecoded = 256

// decoder makes complete pods of compact ones. It keeps the latest remainders in their decoded form: pods that are read one after another mostly
// have the same few. It is safe for concurrent use.
type decoder struct {
	mutex   sync.Mutex
	decoded map[unique.Handle[string]]*corev1.Pod
}

// pod returns the complete pod of an informer's object.
func (d *decoder) pod(o any) (*corev1.Pod, error) {
	compact, ok := o.(*Pod)
	if !ok {
		return nil, fmt.Errorf("the cache of pods has a %T", o)
	}
	remainder, err := d.remainder(compact)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", compact.namespace.Value(), compact.name, err)
	}
	return compact.complete(remainder), nil
}

func (d *decoder) remainder(compact *Pod) (*corev1.Pod, error) {
	d.mutex.Lock()
	known := d.decoded[compact.remainder]
	d.mutex.Unlock()
	if known != nil {
		return known, nil
	}
	remainder, err := compact.decode()
	if err != nil {
		return nil, err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.decoded == nil || len(d.decoded) >= maxDecoded {
		d.decoded = map[unique.Handle[string]]*corev1.Pod{}
	}
	d.decoded[compact.remainder] = remainder
	return remainder, nil
}
