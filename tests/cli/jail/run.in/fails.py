def average(numbers):
    return sum(numbers) / len(numbers)


print("before")
average([])
